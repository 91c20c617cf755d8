"""Content at an http(s) URL: downloaded, or confirmed by its host to be unchanged (304)."""

from typing import Protocol, TypeVar

from mmhash import Digest
from mmhash.digest import Algorithm
from mmhash_service.fetch.validators import Validator
from mmhash_service.items.context import RequestContext
from mmhash_service.memo.entries import Fetched

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Target(Protocol[T_co]):
    """The result that content is read for."""

    async def recall(self, fetched: Fetched, /) -> T_co | None:
        """Return the result for content that was fetched before, if the memo has all of it."""

    def expect(self, nbytes: int, /) -> None:
        """Refuse content of a wrong length before it is read."""

    def take(self, piece: bytes, /) -> None:
        """Process the next piece."""

    async def finish(self) -> tuple[T_co, Digest]:
        """Return the result, and the digest by which the memo finds the content."""


async def read_content(
    context: RequestContext, text: str, algorithm: Algorithm, target: Target[T]
) -> T:
    """Return the result for the content of a URL, without a download if it is unchanged."""
    url = context.fetcher.allowed(text)
    entry = await context.memo.url(context.space, str(url), algorithm)
    recalled = None if entry is None else await target.recall(entry)
    condition = None
    if entry is not None and recalled is not None:
        condition = Validator(entry.etag, entry.last_modified)
    async with context.fetcher.get(url, condition) as remote:
        if recalled is not None and remote.unchanged:
            return recalled
        if remote.length is not None:
            target.expect(remote.length)
        await remote.read(target.take)
    result, digest = await target.finish()
    if remote.validator is not None:
        fetched = Fetched(*remote.validator, remote.count, digest)
        context.memo.keep_url(context.space, str(url), fetched)
    return result
