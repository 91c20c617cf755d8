"""When a host's word that its content is the same is proof, and when it may be kept at all."""

import httpx
import pytest

from mmhash_service.fetch.validators import Validator, validator_of

DATE = "Sat, 21 Nov 2026 05:00:00 GMT"
HOUR_AGO = "Sat, 21 Nov 2026 04:00:00 GMT"
MINUTE_AGO = "Sat, 21 Nov 2026 04:59:00 GMT"
SECONDS_AGO = "Sat, 21 Nov 2026 04:59:01 GMT"


def test_a_strong_tag_is_asked_by() -> None:
    validator = validator_of(httpx.Headers({"ETag": '"a-b"', "Last-Modified": HOUR_AGO}))
    assert validator is not None
    assert tuple(validator) == ('"a-b"', None)
    assert validator.headers() == [("If-None-Match", '"a-b"')]


@pytest.mark.parametrize("modified", [HOUR_AGO, MINUTE_AGO])
def test_a_date_is_asked_by_once_it_has_settled(modified: str) -> None:
    validator = validator_of(httpx.Headers({"Last-Modified": modified, "Date": DATE}))
    assert validator is not None
    assert tuple(validator) == (None, modified)
    assert validator.headers() == [("If-Modified-Since", modified)]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"ETag": 'W/"a"'},
        {"ETag": 'W/"a"', "Last-Modified": HOUR_AGO, "Date": DATE},
        {"ETag": "a"},
        {"ETag": '"a"b"'},
        {"ETag": ""},
        {"ETag": '"' + "a" * 1023 + '"'},
        {"Last-Modified": HOUR_AGO},
        {"Last-Modified": SECONDS_AGO, "Date": DATE},
        {"Last-Modified": DATE, "Date": HOUR_AGO},
        {"Last-Modified": "yesterday", "Date": DATE},
        {"Last-Modified": HOUR_AGO, "Date": "today"},
        {"Last-Modified": HOUR_AGO.replace("GMT", ""), "Date": DATE},
        {"Last-Modified": "Sat, 99 Nov 2026 04:00:00 GMT", "Date": DATE},
        {"ETag": '"a"', "Cache-Control": "no-store"},
        {"ETag": '"a"', "Cache-Control": "max-age=60, No-Store"},
        {"ETag": '"a"', "Cache-Control": 'private="set-cookie"'},
        {"ETag": '"a"', "Vary": "*"},
        {"ETag": '"a"', "Vary": "Accept, *"},
    ],
)
def test_without_proof_or_leave_nothing_is_kept(headers: dict[str, str]) -> None:
    assert validator_of(httpx.Headers(headers)) is None


@pytest.mark.parametrize(
    "headers",
    [
        [("ETag", b'"\xe9"')],
        [("ETag", b'"\xc3\xa9"')],
        [("ETag", b'"\xf0\x9f\x98\x80"')],
        [("ETag", b'"a"'), ("ETag", b'"b"')],
        [("Last-Modified", HOUR_AGO.encode() + b" (\xe9)"), ("Date", DATE.encode())],
        [
            ("Last-Modified", b"Mon, 01 Jan 9999999999999999999 00:00:00 GMT"),
            ("Date", DATE.encode()),
        ],
        [
            ("Last-Modified", b"Mon, 01 Jan 2020 00:00:00 +9999999999999999"),
            ("Date", DATE.encode()),
        ],
        [
            ("Last-Modified", HOUR_AGO.encode()),
            ("Date", b"Jan -0000 24:61:61 GMT 999999999999999999"),
        ],
    ],
)
def test_what_cannot_be_sent_back_is_not_kept(headers: list[tuple[str, bytes]]) -> None:
    raw = [(name.encode(), value) for name, value in headers]
    assert validator_of(httpx.Headers(raw)) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"Cache-Control": "max-age=0, no-cache, must-revalidate"},
        {"Cache-Control": "public", "Vary": "Accept-Encoding, Origin"},
    ],
)
def test_what_may_be_kept_for_asking_again_is(headers: dict[str, str]) -> None:
    assert validator_of(httpx.Headers({"ETag": '"a"', **headers})) == ('"a"', None)


def test_a_304_that_speaks_of_other_content_confirms_nothing() -> None:
    by_tag, by_date = Validator('"a"', None), Validator(None, HOUR_AGO)
    assert by_tag.is_confirmed(httpx.Headers({"ETag": '"a"', "Last-Modified": DATE}))
    assert by_tag.is_confirmed(httpx.Headers({}))
    assert not by_tag.is_confirmed(httpx.Headers({"ETag": '"b"'}))
    assert not by_tag.is_confirmed(httpx.Headers({"ETag": 'W/"a"'}))
    assert by_date.is_confirmed(httpx.Headers({"ETag": '"a"'}))
    assert not by_date.is_confirmed(httpx.Headers({"Last-Modified": MINUTE_AGO}))
