"""One item on its way to a thread: the key or the error that the thread brings back."""

import asyncio
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any, NamedTuple

from mmhash.digest import Algorithm, Digest
from mmhash.errors import InputError, MMHashError
from mmhash.executor.item_cost import ItemCost
from mmhash.executor.placement import Target, hash_on


class Options(NamedTuple):
    """The options of a call, which its keys depend on."""

    algorithm: Algorithm
    tenant: bytes | None


Outcome = Digest | Exception


class Job:
    """An item to be hashed in a thread. It holds the item, and so its memory, until it is read.

    `nbytes` is its share of the limit, `callers` the number of calls that wait for `future`.
    """

    def __init__(
        self, item: Any, cost: ItemCost, target: Target, identity: Hashable, options: Options
    ) -> None:
        self.nbytes = cost.nbytes
        self.identity = identity
        self.callers = 0
        self.future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._item = item
        self._target = target
        self._options = options

    def run(
        self,
        threads: int,
        claim: threading.Lock,
        loop: asyncio.AbstractEventLoop,
        done: Callable[["Job", Outcome], None],
    ) -> None:
        """In a thread: hash the item and have the loop call `done`, whatever the item raises.

        Nothing happens if another thread has the claim: the job was given up.
        """
        if not claim.acquire(blocking=False):
            return
        result: Outcome = MMHashError("the thread that hashed the item was ended")
        try:
            result = self._hash(threads)
        finally:
            with suppress(RuntimeError):  # the loop was closed: no call waits
                loop.call_soon_threadsafe(done, self, result)

    def _hash(self, threads: int) -> Outcome:
        try:
            return hash_on(self._target, self._item, *self._options, threads)
        except BaseException as error:  # noqa: BLE001  (handed to the caller)
            return item_error(error)


def item_error(error: BaseException) -> Exception:
    """Turn what reading an item raised into the error that its caller gets.

    An item's KeyboardInterrupt, SystemExit or CancelledError must not end the thread or the loop
    that hashes it, and a StopIteration cannot leave a coroutine: they become the cause of a named
    error. The traceback is dropped: its frames would hold the item for as long as the error is
    kept.
    """
    BaseException.with_traceback(error, None)
    if isinstance(error, Exception) and not isinstance(error, (StopIteration, StopAsyncIteration)):
        return error
    named = InputError(f"reading the item raised {type(error).__name__}")
    named.__cause__ = error
    return named
