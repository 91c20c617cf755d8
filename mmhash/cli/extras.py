"""Optional dependencies of commands, and the error for a missing one."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Exit with the install line of an extra if an import in the block fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("mmhash"):
            raise  # a bug in mmhash
        raise SystemExit(
            f"mmhash: {error.name} is not installed: pip install 'mmhash-keys[{name}]'"
        ) from None
