"""Content at an http(s) URL: downloaded, or known to be what was downloaded before.

It is known to be unchanged if its host answers 304, or, by the setting `url_identity`, if the host
claims the strong digest and the ETag of an earlier download. That download was compared with the
claim. A claim for a URL that was never downloaded is used only for the requests of one tenant, and
only for content that this tenant has had downloaded from elsewhere: a false claim changes only the
keys of the tenant that names the URL, because a tenant's secret is in each of its keys.
"""

import hashlib
from typing import Protocol, TypeVar

import httpx

from mmhash import Digest
from mmhash.digest import Algorithm
from mmhash_service.fetch.identity import ClaimedContent, StrongDigest
from mmhash_service.fetch.policies import IdentityPolicy
from mmhash_service.fetch.validators import Validator
from mmhash_service.memo.entries import Fetched, Identity
from mmhash_service.runtime import metrics
from mmhash_service.runtime.context import RequestContext

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
    """Return the result for the content of a URL, without a download if it is known."""
    url = context.fetcher.allowed(text)
    policy = context.fetcher.policy(url)
    name = str(url) if policy is None else policy.name_of(url)
    entry = None
    if policy is None:
        entry = await context.memo.url(context.space, name, algorithm)
    else:
        known, has_changed = await _recall_by_digest(context, url, name, policy, algorithm, target)
        if known is not None:
            return known
        # Content that has changed by its digest is downloaded, even if its ETag is the same.
        if not has_changed:
            entry = await context.memo.url(context.space, name, algorithm)
    recalled = None if entry is None else await target.recall(entry)
    condition = None
    if entry is not None and recalled is not None:
        condition = Validator(entry.etag, entry.last_modified)
    async with context.fetcher.get(url, condition) as remote:
        if recalled is not None and remote.unchanged:
            return recalled
        if remote.length is not None:
            target.expect(remote.length)
        check = _Check(target, remote.claimed)
        await remote.read(check.take)
    result, digest = await target.finish()
    if not check.is_true():
        # The content is what was received, but nothing that this host says is stored.
        metrics.URL_IDENTITIES.labels("mismatch").inc()
        return result
    if remote.validator is not None:
        fetched = Fetched(*remote.validator, remote.count, digest)
        context.memo.keep_url(context.space, name, fetched)
    if remote.claimed is not None:
        _keep(context, name, remote.claimed, Fetched(None, None, remote.count, digest))
    return result


async def _recall_by_digest(  # noqa: PLR0917  (private)
    context: RequestContext,
    url: httpx.URL,
    name: str,
    policy: IdentityPolicy,
    algorithm: Algorithm,
    target: Target[T],
) -> tuple[T | None, bool]:
    """Return the result if the host claims content that was downloaded before.

    The other value is whether the host claims other content than that of the last download.
    """
    memo, tenant = context.memo, context.tenant
    identity = await memo.identity(context.space, name, algorithm)
    if identity is None and tenant is None:
        return None, False  # no claim could be used
    claimed = await context.fetcher.probe(url, policy)
    if claimed is None:
        metrics.URL_IDENTITIES.labels("no-digest").inc()
        return None, False
    if identity is not None:
        is_same = claimed.digest == identity.claimed and claimed.etag == identity.fetched.etag
        if is_same and _has_length(claimed, identity.fetched):
            return await _recalled(target, identity.fetched, "hit"), False
    has_changed = identity is not None
    if tenant is None:
        return None, has_changed
    fetched = await memo.content(tenant.secret, claimed.digest, algorithm)
    if fetched is None or not _has_length(claimed, fetched):
        return None, has_changed
    return await _recalled(target, fetched, "tenant-hit"), has_changed


async def _recalled(target: Target[T], fetched: Fetched, label: str) -> T | None:
    result = await target.recall(fetched)
    if result is not None:
        metrics.URL_IDENTITIES.labels(label).inc()
    return result


def _has_length(claimed: ClaimedContent, fetched: Fetched) -> bool:
    return claimed.nbytes in {None, fetched.nbytes}


def _keep(context: RequestContext, name: str, claimed: ClaimedContent, fetched: Fetched) -> None:
    """Store a claim that the download has confirmed."""
    metrics.URL_IDENTITIES.labels("verified").inc()
    identity = Identity(claimed.digest, fetched._replace(etag=claimed.etag))
    context.memo.keep_identity(context.space, name, identity)
    if context.tenant is not None:
        context.memo.keep_content(context.tenant.secret, claimed.digest, fetched)


class _Check:
    """Passes content on, and compares it with the digest that its host claims, if any."""

    def __init__(self, target: Target[object], claimed: ClaimedContent | None) -> None:
        self._target = target
        self._claimed = claimed
        # A chunk of 64 KiB takes 0.05 ms with the CPU's SHA instructions, 0.3 ms without.
        self._hasher = hashlib.new(claimed.digest.name) if claimed else None

    def take(self, piece: bytes) -> None:
        if self._hasher is not None:
            self._hasher.update(piece)
        self._target.take(piece)

    def is_true(self) -> bool:
        """Return True if the content has the claimed digest; also if none is claimed."""
        if self._claimed is None or self._hasher is None:
            return True
        name = self._claimed.digest.name
        return StrongDigest(name, self._hasher.digest()) == self._claimed.digest
