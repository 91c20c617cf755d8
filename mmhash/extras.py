"""The error for a missing optional dependency, which names the extra to install."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs_extra(name: str) -> Iterator[None]:
    """If an import in the block fails for want of a package, name the extra in the error."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("mmhash"):  # a bug
            raise
        install = f"{error.name} is not installed: pip install 'mmhash-keys[{name}]'"
        raise ModuleNotFoundError(install, name=error.name) from None
