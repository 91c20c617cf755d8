"""API keys: with any set, every call but the probes needs one."""

import hmac
from collections.abc import Iterator
from typing import Any

import pytest
from blake3 import blake3

from mmhash_service.endpoints.page import FILES
from mmhash_service.http import api_keys
from mmhash_service.http.api_keys import PROBES
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.support.in_process import running
from tests.support.responses import problem_of

OPEN_PATHS = PROBES | FILES.keys()

KEYS = ("first key", "zweiter Schl\u00fcssel")


@pytest.fixture(scope="module")
def guarded() -> Iterator[Any]:
    digests = tuple(blake3(key.encode()).hexdigest().upper() for key in KEYS)
    with running(create_app(Settings(api_key_digests=digests))) as server:
        yield server


def with_key(key: str) -> dict[str, bytes]:
    return {"authorization": f"Bearer {key}".encode()}


@pytest.mark.parametrize("key", KEYS)
def test_each_key_opens_every_call(guarded: Any, key: str) -> None:
    headers = with_key(key)
    for path in ("/version", "/info", "/metrics", "/openapi.json", "/docs"):
        assert guarded.client.get(path, headers=headers).status_code == 200
    headers["content-type"] = b"application/octet-stream"
    assert guarded.client.post("/hash", content=b"abc", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        with_key("first"),
        with_key(blake3(b"first key").hexdigest()),
        {"authorization": "first key"},
        {"authorization": "Basic first key"},
        {"authorization": b"Bearer \xff\xfe"},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer  first key"},
        {"authorization": "bearer FIRST KEY"},
        with_key("first key, Bearer x"),
        with_key("a" * 60_000),
    ],
)
def test_without_a_good_key_no_call_is_answered(guarded: Any, headers: dict[str, Any]) -> None:
    page = guarded.uvicorn.config.app.openapi()
    paths = page["paths"].keys() | {"/docs", "/openapi.json", "/nothing"}
    for path in sorted(paths - OPEN_PATHS):
        for method in ("GET", "POST"):
            answer = guarded.client.request(method, path, headers=headers)
            assert problem_of(answer) == (401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"


def test_the_probes_and_the_page_are_open(guarded: Any) -> None:
    assert {"/health", "/live", "/ready"} == PROBES
    for path in OPEN_PATHS:
        assert guarded.client.get(path).status_code == 200


def test_a_body_without_a_key_is_not_read(guarded: Any) -> None:
    answer = guarded.send_raw(
        b"POST /hash HTTP/1.1\r\nHost: test\r\nConnection: close\r\n"
        b"Content-Length: 1000000\r\nExpect: 100-continue\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 401 ")


def test_every_key_is_compared_whole_whichever_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timing would tell a key byte by byte; the work that it could show is counted here."""
    digests = tuple(blake3(key.encode()).hexdigest() for key in KEYS)
    compared: list[tuple[int, int]] = []

    def count(one: str, other: str) -> bool:
        compared.append((len(one), len(other)))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(api_keys, "compare_digest", count)
    seen = set()
    for key in (*KEYS, "", "a", "first", KEYS[0] + "a", "\xff" * 1000):
        compared.clear()
        api_keys._is_valid(key, digests)
        seen.add(tuple(compared))
    assert seen == {((64, 64),) * len(KEYS)}
