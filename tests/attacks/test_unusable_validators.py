"""A host whose ETag or date cannot be sent back, so that its URL fails from the second request on.

A validator is used only if it is plain ASCII; without one, the content is downloaded again.
"""

from collections.abc import Iterator
from typing import Any

import pytest

import mmhash
from tests.support.origin import Origin
from tests.support.responses import items_of
from tests.support.victim import serving

DATE = "Date: Mon, 01 Jan 2024 00:00:00 GMT"
HEADERS = {
    "a Latin-1 ETag": ['ETag: "\xe9"'],
    "a UTF-8 ETag": ['ETag: "\xc3\xa9"'],
    "a wide ETag": ['ETag: "\xf0\x9f\x98\x80"'],
    "an ETag that is cut off": ['ETag: "\xc3"'],
    "two ETags": ['ETag: "a"', 'ETag: "b"'],
    "a date with a comment": ["Last-Modified: Mon, 01 Jan 2020 00:00:00 GMT (\xe9)", DATE],
    "a date beyond numbers": [f"Last-Modified: Mon, 01 Jan {'9' * 30} 00:00:00 GMT", DATE],
    "a time zone beyond numbers": [
        f"Last-Modified: Mon, 01 Jan 2020 00:00:00 +{'9' * 30}",
        DATE,
    ],
    "an answer beyond numbers": [
        "Last-Modified: Mon, 01 Jan 2020 00:00:00 GMT",
        f"Date: Jan -0000 24:61:61 GMT {'9' * 30}",
    ],
    "other headers": ["Vary: \xe9", "Cache-Control: \xff=\xff", "Content-Type: \xff"],
}


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    host = Origin()
    yield host
    host.close()


@pytest.fixture(scope="module")
def fetching(origin: Origin) -> Iterator[Any]:
    hosts = [f"127.0.0.1:{origin.port}"]
    with serving(url_hosts=hosts, url_networks=["127.0.0.0/8"]) as server:
        yield server


@pytest.mark.parametrize("name", HEADERS)
def test_each_request_has_the_key_of_the_content(fetching: Any, origin: Origin, name: str) -> None:
    origin.answers["/x"] = Origin.ok(b"abc", *HEADERS[name])
    for _ in range(3):
        url = f"http://127.0.0.1:{origin.port}/x"
        (item,) = items_of(fetching.hash_json({"kind": "bytes", "url": url}))
        assert item["key"] == mmhash.key(b"abc").hex()
