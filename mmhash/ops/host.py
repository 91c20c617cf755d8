"""Digests of many buffers in host memory."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from mmhash.cpu import cpu_count, hash_raw
from mmhash.digest import DIGEST_SIZE, Algorithm
from mmhash.states import FlatBuffer

# Each call starts threads, so each thread needs at least this much to hash.
SHARE = 1 << 20


def hash_buffers(buffers: Sequence[FlatBuffer], algorithm: Algorithm) -> torch.Tensor:
    """Return the digest of each buffer as a row."""
    threads = min(cpu_count(), sum(map(len, buffers)) // SHARE)
    # Hash buffers in parallel only if there are enough buffers for all threads.
    if threads <= 1 or len(buffers) < threads:
        digests = [hash_raw(buffer, algorithm) for buffer in buffers]
    else:
        with ThreadPoolExecutor(threads) as pool:
            digests = list(pool.map(lambda data: hash_raw(data, algorithm, 1), buffers))
    return as_rows(digests, algorithm)


def as_rows(digests: Sequence[bytes], algorithm: Algorithm) -> torch.Tensor:
    """Return digests as a tensor with a row per digest."""
    rows = torch.empty(len(digests), DIGEST_SIZE[algorithm], dtype=torch.uint8)
    rows.view(-1).numpy().data[:] = b"".join(digests)
    return rows
