"""Host bytes hashed on a GPU, and what lies on a GPU hashed from another thread."""

import ctypes
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np

from mmhash import cuda
from mmhash.digest import Algorithm, Digest


def digest_through(device: int, data: memoryview, algorithm: Algorithm) -> Digest:
    """The digest of host bytes, copied to the GPU and hashed there on a stream of their own."""
    import torch  # noqa: PLC0415  (whoever names a GPU has it)

    with torch.cuda.stream(_stream(device)):
        if len(data):
            # By address, for torch warns of a buffer that is read-only.
            address = np.frombuffer(data, np.uint8).ctypes.data
            there = torch.frombuffer(
                (ctypes.c_ubyte * len(data)).from_address(address), dtype=torch.uint8
            ).to(f"cuda:{device}")
        else:
            there = torch.empty(0, dtype=torch.uint8, device=f"cuda:{device}")
        segment = (there.data_ptr(), there.nbytes)
        (found,) = cuda.hash_segments(device, [segment], algorithm).wait()
    return Digest(algorithm, found)


@cache
def _stream(device: int) -> Any:
    import torch  # noqa: PLC0415  (whoever names a GPU has it)

    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def current_stream(device: int) -> Any:
    """The stream on which the calling thread made what lies on the GPU."""
    import torch  # noqa: PLC0415  (what lies there is a tensor)

    return torch.cuda.current_stream(device)


def after(stream: Any) -> AbstractContextManager[Any]:
    """Work in this thread as if it came next on `stream`; without one, as it comes."""
    if stream is None:
        return nullcontext()
    import torch  # noqa: PLC0415  (a stream is one of its own)

    context: AbstractContextManager[Any] = torch.cuda.stream(stream)
    return context


def on_host(item: Any) -> Any:
    """`item`, its tensors on GPUs copied to the host."""
    if isinstance(item, (list, tuple)):
        return [on_host(part) for part in item]
    return item.cpu() if getattr(item, "is_cuda", False) else item
