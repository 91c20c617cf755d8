"""Validators (ETag, Last-Modified), which prove that content is unchanged byte for byte."""

import re
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import httpx

# Weak ETags (W/"x") are ignored, because they allow the bytes to differ. So are ETags beyond ASCII:
# they could not be sent back as the same bytes.
_STRONG_ETAG = re.compile(r'"[\x21\x23-\x7e]{0,1022}"')
_DATE = re.compile(r"[\x20-\x7e]{1,64}")

# Dates have a resolution of one second, so content may change without a new date. RFC 7232 trusts a
# date if it was at least a minute old when the content was sent.
_SETTLED = timedelta(seconds=60)

_NO_STORE = {"no-store", "private"}


class Validator(NamedTuple):
    """Either an ETag or a date; the other is None."""

    etag: str | None
    last_modified: str | None

    def headers(self) -> list[tuple[str, str]]:
        """Return the header of a conditional request."""
        if self.etag is not None:
            return [("If-None-Match", self.etag)]
        return [("If-Modified-Since", self.last_modified or "")]

    def is_confirmed(self, headers: httpx.Headers) -> bool:
        """Return True if the headers of a 304 agree with this validator."""
        return (self.etag is None or headers.get("etag", self.etag) == self.etag) and (
            self.last_modified is None
            or headers.get("last-modified", self.last_modified) == self.last_modified
        )


def validator_of(headers: httpx.Headers) -> Validator | None:
    """Return the validator in the headers; None if there is none, or no-store applies."""
    if not _may_store(headers):
        return None
    etag = headers.get("etag")
    if etag is not None:
        return Validator(etag, None) if _STRONG_ETAG.fullmatch(etag) else None
    modified = headers.get("last-modified")
    if modified is None or not _is_settled(modified, headers.get("date", "")):
        return None
    return Validator(None, modified)


def _may_store(headers: httpx.Headers) -> bool:
    """Return True if the response may be stored and reused."""
    directives = {
        part.partition("=")[0].strip().lower()
        for part in headers.get("cache-control", "").split(",")
    }
    # All requests have the same headers, so the only value of Vary that matters is *.
    varies = any(name.strip() == "*" for name in headers.get("vary", "").split(","))
    return not (directives & _NO_STORE or varies)


def _is_settled(modified: str, date: str) -> bool:
    then, now = _moment(modified), _moment(date)
    return then is not None and now is not None and now - then >= _SETTLED


def _moment(text: str) -> datetime | None:
    """Return the time in a header, which is always in GMT."""
    if _DATE.fullmatch(text) is None:
        return None
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo is not None else None
