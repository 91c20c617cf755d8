"""Which requests the gateway's application answers itself or forwards, and how it reports failures."""

import logging
from collections.abc import Iterator

import httpx
import pytest
from fastapi import APIRouter
from starlette.requests import ClientDisconnect
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from mmhash_service.http.app import build_endpoints, list_middleware
from mmhash_service.http.gateway import Gateway
from mmhash_service.problems.problem import Problem
from mmhash_service.resources import Resources
from mmhash_service.settings import Settings
from tests.support.in_process import start_decoders_late
from tests.support.responses import problem_of

OWN = frozenset({"/own"})


async def proxy(scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer with the path, or fail as the path says."""
    name = scope["path"].removeprefix("/")
    match name:
        case "crash":
            raise ZeroDivisionError
        case "left":
            raise ClientDisconnect
        case "busy":
            raise Problem("busy", reason="of this test")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if name == "late":
        raise Problem("busy")
    await send({"type": "http.response.body", "body": name.encode()})


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    router = APIRouter()

    @router.get("/own")
    async def own() -> str:
        return "own"

    settings = Settings()
    endpoints = build_endpoints(Resources(settings), [router])
    start_decoders_late(endpoints)
    app = Gateway(endpoints, OWN, proxy, list_middleware(settings, OWN | {"/crash"}, ()))
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def test_only_its_own_paths_are_answered_by_its_endpoints(client: httpx.Client) -> None:
    assert client.get("/own").json() == "own"
    assert problem_of(client.post("/own")) == (405, "method-not-allowed")
    for path in ("/own/", "/own%0A", "/Own", "/other"):
        assert client.post(path).content == httpx.URL(path).path.removeprefix("/").encode()


def test_a_problem_of_the_proxy_is_answered_as_one_of_an_endpoint(client: httpx.Client) -> None:
    answer = client.get("/busy")
    assert problem_of(answer) == (429, "busy")
    assert answer.json()["reason"] == "of this test"
    assert answer.headers["retry-after"] == "1"
    assert client.get("/left").status_code == 499


def test_a_defect_of_the_proxy_is_answered_logged_and_raised(
    client: httpx.Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("mmhash_service"), "propagate", True)
    caplog.set_level(logging.INFO, "mmhash_service")
    answer = client.get("/crash")
    assert problem_of(answer) == (500, "internal-error")
    assert answer.headers["x-request-id"]
    assert "GET /crash 500" in caplog.messages
    with pytest.raises(ZeroDivisionError), TestClient(client.app) as raising:  # type: ignore[attr-defined]
        raising.get("/crash")


def test_a_response_that_has_begun_gets_no_second_head(client: httpx.Client) -> None:
    with pytest.raises(Problem, match="busy"), TestClient(client.app) as raising:  # type: ignore[attr-defined]
        raising.get("/late")
