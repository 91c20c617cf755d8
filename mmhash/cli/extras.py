"""What a command needs beyond the core, and how to say that it is missing."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Import inside this: a package that is missing ends the command with the extra's name."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("mmhash"):
            raise  # a defect of ours
        raise SystemExit(
            f"mmhash: {error.name} is not installed: pip install 'mmhash-keys[{name}]'"
        ) from None
