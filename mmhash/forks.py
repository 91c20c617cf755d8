"""Objects that belong to one process: after a fork, using them would give wrong keys."""

import os

from mmhash.errors import MMHashError


def check_not_forked(name: str, owner: int) -> None:
    """Raise in a forked child if its parent, whose process id is `owner`, made the object.

    Two processes that read one connection take each other's responses, and two that lease one
    pool's slices overwrite each other's content.
    """
    if owner != os.getpid():
        raise MMHashError(f"this {name} was made before a fork: make one in each process")
