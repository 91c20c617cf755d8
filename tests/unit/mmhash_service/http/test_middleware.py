"""Request ids, the log, the metrics and API keys."""

import hmac
import json
import logging
import socket
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from blake3 import blake3

from mmhash_service.endpoints.page import FILES
from mmhash_service.http import middleware
from mmhash_service.http.app import create_app
from mmhash_service.http.middleware import POLLED, PROBES
from mmhash_service.server import logs
from mmhash_service.settings import Settings
from mmhash_service.telemetry import metrics
from tests.support.in_process import running
from tests.support.responses import problem_of
from tests.support.waiting import wait_until

RAW = {"content-type": "application/octet-stream"}


class Terminal(StringIO):
    """A log stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def stderr(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, server: Any) -> Any:
    """The log as it goes to such a stderr."""
    stream = request.param()
    server.wait_until_idle()  # it logs a request of another test after its response
    loggers = [logging.getLogger(name) for name in ("mmhash_service", "uvicorn")]
    before = [(at.handlers, at.level, at.propagate) for at in loggers]
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure()
    yield stream
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def sample(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, labels) or 0.0


def test_each_answer_has_an_id_of_its_own_or_the_caller_s(client: httpx.Client) -> None:
    ids = [client.get(path).headers["x-request-id"] for path in ("/live", "/info", "/nothing")]
    assert len(set(ids)) == 3
    given = client.get("/info", headers={"x-request-id": "A-1.b_2"})
    assert given.headers["x-request-id"] == "A-1.b_2"


@pytest.mark.parametrize("stderr", [StringIO], indirect=True)
def test_the_log_is_json_unless_it_is_a_terminal(stderr: StringIO) -> None:
    with running(create_app(Settings(decoders=1))) as server:
        server.client.get("/nothing", headers={"x-request-id": "me"})
        server.client.post("/hash", content=b"abc", headers=RAW)
        server.client.post("/pad", content=b"abc", headers=RAW)
        server.wait_until_idle()
    entries = [json.loads(line) for line in stderr.getvalue().splitlines()]
    assert [entry["message"] for entry in entries] == [
        "GET other 404",
        "POST /hash 200",
        "POST /pad 415",
    ]
    assert entries[0]["request_id"] == "me"
    assert (entries[1]["body_bytes"], entries[1]["level"]) == (3, "info")
    assert entries[1]["duration_ms"] > 0


@pytest.mark.parametrize("stderr", [Terminal], indirect=True)
def test_the_log_of_a_terminal_is_plain_lines(stderr: StringIO) -> None:
    with running(create_app(Settings(decoders=1))) as server:
        server.client.get("/version", headers={"x-request-id": "me"})
        server.wait_until_idle()
    (line,) = stderr.getvalue().splitlines()
    assert "GET /version 200" in line
    assert line.endswith("request=me")


@pytest.mark.parametrize("stderr", [StringIO], indirect=True)
def test_neither_a_payload_nor_a_secret_is_in_the_log(stderr: StringIO) -> None:
    secret, payload = "5ec2e7" * 10 + "abcd", "PAYLOAD"
    kinds = (
        "application/octet-stream",
        "application/json",
        "application/x-safetensors",
        "multipart/form-data; boundary=PAYLOAD",
        "image/png",
        "PAYLOAD",
    )
    headers_of_files = (b'{"PAYLOAD":\xff}', b'{"PAYLOAD\xff":1}', b'{"PAYLOAD":{"PAYLOAD":1}}')
    bodies = (
        b"PAYLOAD",
        b'{"items":[{"kind":"PAYLOAD","PAYLOAD":"PAYLOAD"}]}',
        *(len(header).to_bytes(8, "little") + header for header in headers_of_files),
        b"--PAYLOAD\r\nPAYLOAD\r\n\r\nPAYLOAD",
        b'{"items":[{"kind":"bytes","data":"PAYLOAD*"}]}',
    )
    with running(create_app(Settings(decoders=1, tenants={"acme": secret}))) as server:
        for kind in kinds:
            for body in bodies:
                for query in ("", "?of=pixels", "?PAYLOAD=1"):
                    headers = {
                        "content-type": kind,
                        "x-mmhash-tenant": "acme",
                        "authorization": "Bearer PAYLOAD",
                        "user-agent": "PAYLOAD",
                        "x-request-id": "\x1b[31mPAYLOAD",
                    }
                    server.client.post("/hash" + query, content=body, headers=headers)
        for path in ("/annotate?engine=vllm", "/blocks", "/pad", "/plan?engine=vllm"):
            for body in (b'{"messages":"PAYLOAD\xff"}', b'{"PAYLOAD":1,}', b"PAYLOAD"):
                headers = {"content-type": "application/json"}
                server.client.post(path, content=body, headers=headers)
        server.client.get("/%0d%0aPAYLOAD", headers={"x-mmhash-tenant": "PAYLOAD"})
        server.send_raw(b"PAYLOAD PAYLOAD\r\n\r\n")
        server.wait_until_idle()
    text = stderr.getvalue()
    assert len(text.splitlines()) > 90
    assert secret not in text
    assert payload not in text
    for line in text.splitlines():
        json.loads(line)


def test_metrics_count_calls_bytes_items_and_problems(server: Any) -> None:
    def counts() -> list[float]:
        return [
            sample("mmhash_requests_total", call="/hash", status="200"),
            sample("mmhash_requests_total", call="/hash", status="415"),
            sample("mmhash_requests_total", call="other", status="404"),
            sample("mmhash_request_duration_seconds_count", call="/hash"),
            sample("mmhash_items_total", kind="bytes"),
            sample("mmhash_problems_total", problem="unsupported-media-type"),
            sample("mmhash_body_bytes_total"),
        ]

    server.wait_until_idle()
    before = counts()
    server.client.post("/hash", content=b"abc", headers=RAW)
    server.client.post("/hash", content=b"abc", headers={"content-type": "a/b"})
    server.client.get("/nothing")
    server.wait_until_idle()
    added = [after - past for past, after in zip(before, counts(), strict=True)]
    assert added == [1, 1, 1, 2, 1, 1, 3]
    assert sample("mmhash_calls_in_progress") == 0
    assert sample("mmhash_held_bytes") == 0


def test_probes_are_not_counted(server: Any) -> None:
    for path in POLLED:
        assert server.client.get(path).status_code == 200
    text = server.client.get("/metrics").text
    assert not any(f'"{path}"' in text for path in POLLED)


def test_an_empty_metrics_file_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its making and its first byte the file is empty; a soak met it so."""
    (tmp_path / "counter_1.db").touch()
    monkeypatch.setenv(metrics.MULTIPROC_VARIABLE, str(tmp_path))
    text, _ = metrics.exposition()
    assert b"mmhash_requests" not in text


def test_a_client_that_leaves_its_request_unfinished_has_a_status_of_its_own() -> None:
    with running(create_app(Settings(decoders=1))) as server:
        before = sample("mmhash_requests_total", call="/hash", status="499")
        with socket.create_connection(server.address) as connection:
            connection.sendall(
                b"POST /hash HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
                b"Content-Type: application/octet-stream\r\n\r\nabc"
            )
        wait_until(
            lambda: sample("mmhash_requests_total", call="/hash", status="499") == before + 1
        )


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


def test_the_scheme_of_a_key_has_no_case(guarded: Any) -> None:
    """RFC 9110, 11.1; engines accept any case too."""
    key = KEYS[0]
    for scheme in ("bearer", "BEARER"):
        answer = guarded.client.get("/version", headers={"authorization": f"{scheme} {key}"})
        assert answer.status_code == 200


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

    monkeypatch.setattr(middleware, "compare_digest", count)
    seen = set()
    for key in (*KEYS, "", "a", "first", KEYS[0] + "a", "\xff" * 1000):
        compared.clear()
        middleware._is_valid(key, digests)
        seen.add(tuple(compared))
    assert seen == {((64, 64),) * len(KEYS)}
