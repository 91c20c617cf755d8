"""The body, read piece by piece and never past the limit."""

from collections.abc import Callable

from anyio import to_thread
from fastapi import Request

from mmhash_service.parsing import parse_natural
from mmhash_service.problems import Problem

# Longer pieces are taken in a thread. Those of uvicorn are shorter, about 64 KiB: 10 to 30 µs of
# hashing, less than it takes to hand them to a thread.
MAX_INLINE = 1 << 20


def declared_length(request: Request) -> int | None:
    """The length that the client says the body has, if it says any."""
    return parse_natural(request.headers.get("content-length", ""))


async def read_body(request: Request, limit: int, take: Callable[[bytes], object]) -> int:
    """Hand each piece of the body to `take`, as it comes, and return the length of all."""
    if (declared_length(request) or 0) > limit:
        raise Problem("body-too-large")
    length = 0
    async for piece in request.stream():
        length += len(piece)
        if length > limit:
            raise Problem("body-too-large")
        if len(piece) > MAX_INLINE:
            await to_thread.run_sync(take, piece)
        else:
            take(piece)
    return length
