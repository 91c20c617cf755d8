"""Optional dependencies of commands, and the error for a missing one."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from mmhash.extras import install_line


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Exit with the install line of an extra if an import in the block fails.

    The block has no garbage collections: in imports they take 7 % of the CPU, and find nothing.
    """
    gc.disable()
    try:
        yield
    except ModuleNotFoundError as error:
        raise SystemExit(f"mmhash: {install_line(error, name)}") from None
    finally:
        end_imports()


def end_imports() -> None:
    """Allow garbage collections again, which then pass over what has been imported."""
    gc.freeze()
    gc.enable()
