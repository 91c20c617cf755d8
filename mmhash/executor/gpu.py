"""Host bytes hashed on a GPU, and GPU tensors hashed from another thread."""

import ctypes
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np

from mmhash import cuda
from mmhash.digest import Algorithm, Digest
from mmhash.split import LISTS


def digest_on_gpu(device: int, data: memoryview, algorithm: Algorithm) -> Digest:
    """Return the digest of host bytes, copied to the GPU and hashed there on a separate stream."""
    import torch  # noqa: PLC0415  (needed only with a GPU)

    with torch.cuda.stream(_stream(device)):
        if len(data):
            # By address, because torch warns about read-only buffers.
            address = np.frombuffer(data, np.uint8).ctypes.data
            on_gpu = torch.frombuffer(
                (ctypes.c_ubyte * len(data)).from_address(address), dtype=torch.uint8
            ).to(f"cuda:{device}")
        else:
            on_gpu = torch.empty(0, dtype=torch.uint8, device=f"cuda:{device}")
        segment = (on_gpu.data_ptr(), on_gpu.nbytes)
        (digest,) = cuda.hash_segments(device, [segment], algorithm).wait()
    return Digest(algorithm, digest)


@cache
def _stream(device: int) -> Any:
    import torch  # noqa: PLC0415  (needed only with a GPU)

    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def current_stream(device: int) -> Any:
    """Return the stream on which the calling thread computes."""
    import torch  # noqa: PLC0415  (a GPU tensor has imported it)

    return torch.cuda.current_stream(device)


def on_stream(stream: Any) -> AbstractContextManager[Any]:
    """Queue this thread's GPU work on `stream`, if there is one."""
    if stream is None:
        return nullcontext()
    import torch  # noqa: PLC0415  (a stream has imported it)

    context: AbstractContextManager[Any] = torch.cuda.stream(stream)
    return context


def copy_to_host(item: Any) -> Any:
    """Return `item` with its GPU tensors copied to the host."""
    if isinstance(item, LISTS):
        return [copy_to_host(part) for part in item]
    return item.cpu() if getattr(item, "is_cuda", False) else item
