"""The digest of a named file, with a progress bar."""

import os

from mmhash.algorithms import ALGORITHM_SPECS
from mmhash.cli.progress import bar
from mmhash.cpu import cpu_count
from mmhash.digest import Algorithm, Digest
from mmhash.io.files import hash_file, open_file, open_regular_file
from mmhash.io.names import STDIN


def hash_named_file(
    name: str, algorithm: Algorithm, threads: int | None, *, quiet: bool, is_named: bool = True
) -> tuple[Digest, int]:
    """Return the digest of a file's bytes, and their number.

    A file that the user did not name is read only if it is a regular file: others may never end.
    """
    # Not a Hasher, which takes any input and imports numpy for it: 0.07 s of CPU.
    state = ALGORITHM_SPECS[algorithm].new_state(threads or cpu_count())
    with open_file(name) if is_named else open_regular_file(name) as file:
        size = os.fstat(file.fileno()).st_size
        with bar(name, size, quiet=quiet) as advance:
            nbytes = hash_file(file, state, is_mapped=name != STDIN, advance=advance)
    return Digest(algorithm, state.digest()), nbytes
