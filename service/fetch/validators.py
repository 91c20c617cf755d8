"""By what a host may later say that its content is still the same, and when that is proof."""

import re
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import httpx

# W/"x" says that two contents mean the same. Their bytes may differ, so it is no proof of a digest.
_STRONG_ETAG = re.compile(r'"[\x21\x23-\x7e\x80-\xff]{0,1022}"')

# A date has no fractions: content that changed twice within its second has one date. RFC 7232
# trusts one that was a minute old when the content was sent.
_SETTLED = timedelta(seconds=60)

_NOT_TO_KEEP = {"no-store", "private"}


class Validator(NamedTuple):
    """The one of the two by which to ask; the other is None."""

    etag: str | None
    last_modified: str | None

    def headers(self) -> list[tuple[str, str]]:
        """What makes a request one that asks only whether the content has changed."""
        if self.etag is not None:
            return [("If-None-Match", self.etag)]
        return [("If-Modified-Since", self.last_modified or "")]

    def is_confirmed(self, headers: httpx.Headers) -> bool:
        """Whether the head of a 304 speaks of the content that was asked for, if of any."""
        return (self.etag is None or headers.get("etag", self.etag) == self.etag) and (
            self.last_modified is None
            or headers.get("last-modified", self.last_modified) == self.last_modified
        )


def validator_of(headers: httpx.Headers) -> Validator | None:
    """By what to ask again, if what came may be kept and has anything to ask by."""
    directives = {
        part.partition("=")[0].strip().lower()
        for part in headers.get("cache-control", "").split(",")
    }
    # All our requests have the same headers, so of those that Vary may name it is * that matters.
    varies = any(name.strip() == "*" for name in headers.get("vary", "").split(","))
    if directives & _NOT_TO_KEEP or varies:
        return None
    etag = headers.get("etag")
    if etag is not None:
        return Validator(etag, None) if _STRONG_ETAG.fullmatch(etag) else None
    modified = headers.get("last-modified")
    if modified is None or not _is_settled(modified, headers.get("date", "")):
        return None
    return Validator(None, modified)


def _is_settled(modified: str, date: str) -> bool:
    then, now = _moment(modified), _moment(date)
    return then is not None and now is not None and now - then >= _SETTLED


def _moment(text: str) -> datetime | None:
    """The time that a header tells, which is always GMT."""
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
