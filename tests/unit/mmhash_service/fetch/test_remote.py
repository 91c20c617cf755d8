"""Which ETags prove that content is unchanged, and when one may be kept."""

import httpx
import pytest

from mmhash_service.fetch.remote import etag_of


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Last-Modified": "Sat, 21 Nov 2020 05:00:00 GMT"},
        {"ETag": 'W/"a"'},
        {"ETag": "a"},
        {"ETag": '"a"b"'},
        {"ETag": ""},
        {"ETag": '"' + "a" * 1023 + '"'},
        {"ETag": '"a"', "Cache-Control": "no-store"},
        {"ETag": '"a"', "Cache-Control": "max-age=60, No-Store"},
        {"ETag": '"a"', "Cache-Control": 'private="set-cookie"'},
        {"ETag": '"a"', "Vary": "*"},
        {"ETag": '"a"', "Vary": "Accept, *"},
    ],
)
def test_an_etag_is_not_kept_without_permission(headers: dict[str, str]) -> None:
    assert etag_of(httpx.Headers(headers)) is None


@pytest.mark.parametrize(
    "headers",
    [
        [("ETag", b'"\xe9"')],
        [("ETag", b'"\xc3\xa9"')],
        [("ETag", b'"\xf0\x9f\x98\x80"')],
        [("ETag", b'"a"'), ("ETag", b'"b"')],
    ],
)
def test_an_etag_that_cannot_be_sent_back_is_not_kept(headers: list[tuple[str, bytes]]) -> None:
    raw = [(name.encode(), value) for name, value in headers]
    assert etag_of(httpx.Headers(raw)) is None


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Cache-Control": "max-age=0, no-cache, must-revalidate"},
        {"Cache-Control": "public", "Vary": "Accept-Encoding, Origin"},
    ],
)
def test_an_etag_that_may_be_kept_is(headers: dict[str, str]) -> None:
    assert etag_of(httpx.Headers({"ETag": '"a-b"', **headers})) == '"a-b"'
