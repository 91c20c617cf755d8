"""Jobs: items on their way to a thread, and the keys or errors that come back."""

import asyncio
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from mmhash.digest import Algorithm, Digest
from mmhash.errors import InputError
from mmhash.hashing import key, keys


class JobOptions(NamedTuple):
    """The options of a call that its keys depend on."""

    algorithm: Algorithm
    tenant: bytes | None


Outcome = Digest | Exception


class Job:
    """Items that one thread reads: a single item in host memory, or a call's items on one GPU.

    A job holds its items, and so their memory, until they are read. `callers` is the number of
    calls waiting for `future`, which gets the outcome of each item. GPU items are hashed after the
    work that the caller queued on `stream`.
    """

    def __init__(self, options: JobOptions, stream: Any = None) -> None:
        self.options = options
        self.stream = stream
        self.items: list[Any] = []
        self.identities: list[Hashable] = []
        self.nbytes = 0
        self.callers = 0
        self.future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()


def read_items(
    items: Sequence[Any], options: JobOptions, threads: int = 1, stream: Any = None
) -> list[Outcome]:
    """Return the key or error of each item; this blocks."""
    with _on_stream(stream):
        if len(items) > 1:
            try:
                return [*keys(items, algorithm=options.algorithm, tenant=options.tenant)]
            except Exception:  # noqa: BLE001, S110  (to find the item at fault, hash each alone)
                pass
        return [_key_or_error(item, options, threads) for item in items]


def _key_or_error(item: Any, options: JobOptions, threads: int) -> Outcome:
    try:
        return key(item, algorithm=options.algorithm, tenant=options.tenant, threads=threads)
    except Exception as error:  # noqa: BLE001  (the caller gets it)
        # The traceback's frames would keep the item alive as long as the error.
        return error.with_traceback(None)
    except BaseException as error:  # noqa: BLE001  (it must not end the thread)
        named = InputError(f"reading the item raised {type(error).__name__}")
        named.__cause__ = error.with_traceback(None)
        return named


def stream_of(device: int) -> Any:
    """Return the GPU stream that the calling thread computes on."""
    import torch  # noqa: PLC0415  (a GPU tensor has imported it)

    return torch.cuda.current_stream(device)


def _on_stream(stream: Any) -> AbstractContextManager[Any]:
    """Queue this thread's GPU work on `stream`, if there is a stream."""
    if stream is None:
        return nullcontext()
    import torch  # noqa: PLC0415  (a stream has imported it)

    context: AbstractContextManager[Any] = torch.cuda.stream(stream)
    return context
