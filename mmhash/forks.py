"""Objects that belong to one process: using one after a fork would give wrong keys."""

import os

from mmhash.errors import MMHashError


def check_not_forked(name: str, owner: int) -> None:
    """Raise an error in a forked child if the object was made by its parent, the process `owner`.

    Two processes on one connection would take each other's responses. Two processes that lease one
    pool's slices would overwrite each other's content. CUDA does not survive a fork.
    """
    if owner != os.getpid():
        raise MMHashError(f"this {name} was made before a fork: make one in each process")
