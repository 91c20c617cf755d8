"""Decoder processes, and their state by /proc."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx

from mmhash_service.decoder.pool import DecoderPool
from mmhash_service.settings import Settings

_MODULE = b"mmhash_service.decoder.process"


def run_with_pool(
    function: Callable[[DecoderPool], Coroutine[Any, Any, Any]], **settings: Any
) -> Any:
    """Run a coroutine function with a pool that has started, of one decoder unless set."""

    async def main() -> Any:
        pool = DecoderPool(Settings(**{"decoders": 1, **settings}))
        try:
            await wait_until_ready(pool)
            return await function(pool)
        finally:
            await pool.close()

    return asyncio.run(main())


async def wait_until_ready(pool: DecoderPool) -> None:
    """Wait until all processes of a pool have started, for a minute at most."""
    for _ in range(12):  # the probe itself waits for 5 s
        if await pool.is_ready():
            return
    raise AssertionError("the decoders did not start")


def wait_for_ready(client: httpx.Client) -> None:
    """Wait until a service answers that all of its decoders have started, for a minute at most."""
    until = time.monotonic() + 60
    while client.get("/ready").status_code != 200:
        assert time.monotonic() < until, "the decoders did not start"


def children() -> list[int]:
    """Return the decoder processes of this thread: a server of other tests has its own thread."""
    thread = threading.get_native_id()
    listed = map(int, Path(f"/proc/self/task/{thread}/children").read_text().split())
    return sorted(filter(is_decoder, listed))


def is_decoder(pid: int) -> bool:
    """Return True if a process is a decoder; one that has exited is none."""
    try:
        return _MODULE in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def state(pid: int) -> str:
    """Return the state of a process as in proc(5), and Z also when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"
