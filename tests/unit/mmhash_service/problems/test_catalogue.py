"""Problems that no single endpoint causes."""

import httpx
import pytest

from mmhash_service.http.app import create_app
from mmhash_service.problems.catalogue import PROBLEMS
from mmhash_service.problems.problem import Problem, title_of
from tests.support.in_process import running


def check(answer: httpx.Response, name: str) -> None:
    status, detail = PROBLEMS[name]
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": f"urn:mmhash:problem:{name}",
        "title": title_of(name),
        "status": status,
        "detail": detail,
        "error": {
            "message": detail,
            "type": "server_error" if status >= 500 else "invalid_request_error",
            "code": name,
        },
    }


@pytest.mark.parametrize("path", ["/nothing", "/hash/", "/health/", "/%00", "/../etc/passwd"])
def test_an_unknown_path_is_not_found(client: httpx.Client, path: str) -> None:
    check(client.get(path), "not-found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("GET", "/hash", "POST"), ("PUT", "/hash", "POST"), ("POST", "/health", "GET")],
)
def test_a_wrong_method_is_answered_with_the_allowed_ones(
    client: httpx.Client, method: str, path: str, allowed: str
) -> None:
    answer = client.request(method, path)
    check(answer, "method-not-allowed")
    assert answer.headers["allow"] == allowed


def test_an_unforeseen_failure_tells_the_log_and_not_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = create_app()

    @app.get("/broken")
    async def broken() -> None:
        raise ZeroDivisionError("a secret")

    with running(app) as server:
        check(server.client.get("/broken"), "internal-error")
        server.wait_until_idle()
    assert "a secret" in caplog.text


def test_a_reason_is_bounded_and_is_json(client: httpx.Client) -> None:
    answer = client.post(
        "/hash?engines=vllm@0.99.0",
        content=b"",
        headers={"content-type": "application/octet-stream"},
    ).json()
    assert answer["type"] == "urn:mmhash:problem:unknown-engine"
    assert "vllm" in answer["reason"]
    assert len(Problem("unknown-engine", reason="x" * 5000).reason or "") == 300
    assert Problem("unknown-engine", reason="\ud800").reason == r"\ud800"


@pytest.mark.parametrize(
    ("name", "title"), [("not-found", "Not found"), ("url-off", "URL off"), ("busy", "Busy")]
)
def test_a_title_is_the_name_in_words(name: str, title: str) -> None:
    assert title_of(name) == title
