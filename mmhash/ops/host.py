"""Digests of many stretches of host memory at once."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from mmhash.cpu import cpu_count, hash_bytes
from mmhash.digest import DIGEST_SIZE, Algorithm

# A thread is started for a call, in 0.05 ms, so it has to have this much to hash.
SHARE = 1 << 20


def hash_stretches(stretches: Sequence[memoryview], algorithm: Algorithm) -> torch.Tensor:
    """The digest of each, a row each."""
    threads = min(cpu_count(), sum(map(len, stretches)) // SHARE)
    if threads <= 1 or len(stretches) < threads:  # each has work for all cores, or none has
        found = [hash_bytes(stretch, algorithm).bytes for stretch in stretches]
    else:
        with ThreadPoolExecutor(threads) as pool:
            hashed = pool.map(lambda stretch: hash_bytes(stretch, algorithm, 1).bytes, stretches)
            found = list(hashed)
    return as_rows(found, algorithm)


def as_rows(digests: Sequence[bytes], algorithm: Algorithm) -> torch.Tensor:
    """Digests as a tensor, a row each."""
    rows = torch.empty(len(digests), DIGEST_SIZE[algorithm], dtype=torch.uint8)
    rows.view(-1).numpy().data[:] = b"".join(digests)
    return rows
