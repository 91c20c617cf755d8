"""The error for a missing optional dependency: it names the extra to install."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs_extra(name: str) -> Iterator[None]:
    """Name the extra in the error if an import in the block does not find a package."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(install_line(error, name), name=error.name) from None


def install_line(error: ModuleNotFoundError, extra: str) -> str:
    """Return the reason and the remedy; raise the error if it is a bug: a module of mmhash."""
    if error.name is None or error.name.startswith("mmhash"):
        raise error
    return f"{error.name} is not installed: pip install 'mmhash-keys[{extra}]'"
