"""The content, connections and shared memory of a load process."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from mmhash.client import AsyncClient
from tests.soak import oracle

TENANT, SECRET = "acme", bytes(range(32))
# So many files lie at the origin from the start, `shelf-0` and so on.
SHELF = 16

NOISE_BYTES = 48 << 20
LONGEST = 32 << 20

# A service that responds with one of these accepts the request later.
_PASSING = frozenset({429, 503})
_PAUSE_S = 0.1

_BASE = "http://localhost"


Asked = tuple[Any, Callable[[], Awaitable[Any]]]
"""What a request must come to, and how it is made."""


class LoadContext:
    """One process's; contents are drawn from noise that is the same in all processes."""

    def __init__(self, number: int, socket: Path, folder: Path, origin: str) -> None:
        self.draw = random.Random(number)
        self.folder, self.origin = folder, origin
        # How often the request of a task was sent again.
        self.sent_again: Counter[asyncio.Task[Any] | None] = Counter()
        self._noise = np.random.default_rng(0).bytes(NOISE_BYTES)
        # No limit of its own: a request ends with an answer, or when the load has no more patience.
        self.http = httpx.AsyncClient(
            base_url=_BASE, timeout=None, transport=httpx.AsyncHTTPTransport(uds=str(socket))
        )
        self.client = AsyncClient(_BASE, uds=socket, retries=20, timeout_s=60)
        self._files = [f"fresh-{number}-{at}" for at in range(64)]

    async def close(self) -> None:
        """Hang up, and take back what lies in shared memory."""
        await self.http.aclose()
        await self.client.aclose()

    def content(self, longest: int = LONGEST) -> bytes:
        """Some bytes: most often a few hundred, now and then none, and seldom tens of MiB."""
        nbytes = int(2 ** self.draw.triangular(0, longest.bit_length() - 1, 8)) - 1
        return self.noise(nbytes, self.draw)

    def array(self, longest: int = LONGEST) -> np.ndarray[Any, Any]:
        """A tensor of two dimensions; `content` says of what size."""
        dtype = self.draw.choice([np.uint8, np.float16, np.float32, np.int64])
        elements = np.frombuffer(self.content(longest), np.uint8)
        width = np.dtype(dtype).itemsize * self.draw.choice([1, 3, 16])
        rows = len(elements) // width
        return elements[: rows * width].view(dtype).reshape(rows, -1 if rows else 1)

    def noise(self, nbytes: int, draw: random.Random) -> bytes:
        """So many bytes of the noise, from anywhere in it."""
        start = draw.randrange(NOISE_BYTES - nbytes)
        return self._noise[start : start + nbytes]

    def fresh_file(self, content: bytes) -> str:
        """The name of a file of that content: a name comes again when nobody asks for it."""
        name = self._files.pop(0)
        self._files.append(name)
        # The service may be reading what a cancelled request asked for.
        beside = self.folder / f"{name}.new"
        beside.write_bytes(content)
        beside.replace(self.folder / name)
        return name

    async def post(self, path: str, **request: Any) -> Any:
        """Return the final response: a request that breaks off or is refused for now is sent again."""
        while True:
            try:
                response = await self.http.post(path, **request)
            except httpx.TransportError:
                pass  # a worker was killed
            else:
                if response.status_code not in _PASSING:
                    return oracle.answer_of(response)
            self.sent_again[asyncio.current_task()] += 1
            await asyncio.sleep(_PAUSE_S)
