"""The digest of a named file."""

from mmhash.algorithms import ALGORITHM_SPECS
from mmhash.cpu import cpu_count
from mmhash.digest import Algorithm, Digest
from mmhash.io.files import hash_file, open_file
from mmhash.io.names import STDIN


def hash_named_file(name: str, algorithm: Algorithm, threads: int | None) -> tuple[Digest, int]:
    """Return the digest of a file's bytes, and their number."""
    # Not a Hasher, which takes any input and imports numpy for it: 0.07 s of CPU.
    state = ALGORITHM_SPECS[algorithm].new_state(threads or cpu_count())
    with open_file(name) as file:
        nbytes = hash_file(file, state, is_mapped=name != STDIN)
    return Digest(algorithm, state.digest()), nbytes
