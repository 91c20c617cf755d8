"""The probes: whether the server lives and is ready."""

import httpx
import pytest

from mmhash.digest import ALGORITHMS
from mmhash_service.endpoints import self_test
from mmhash_service.http.app import create_app
from mmhash_service.settings import Settings
from tests.support.decoders import wait_for_ready
from tests.support.in_process import running
from tests.support.responses import problem_of


@pytest.fixture(autouse=True)
def _ready(client: httpx.Client) -> None:
    """The decoders may take longer to start than the probe waits."""
    wait_for_ready(client)


@pytest.mark.parametrize("path", ["/live", "/ready", "/health"])
def test_a_probe_may_be_a_head(client: httpx.Client, path: str) -> None:
    answer = client.head(path)
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("path", ["/live", "/ready", "/health"])
def test_a_server_that_is_well_says_so(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_a_backend_that_is_wrong_is_not_ready(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for algorithm in ALGORITHMS:
        with monkeypatch.context() as changed:
            changed.setitem(self_test._KNOWN_DIGESTS, algorithm, "00")
            assert problem_of(client.get("/ready")) == (503, "not-ready")
            assert client.get("/live").status_code == 200
    assert client.get("/ready").status_code == 200


def test_a_server_that_drains_is_not_ready_and_takes_no_calls() -> None:
    app = create_app(Settings())
    with running(app) as server:
        app.state.resources.limits.draining = True
        for answer in (
            server.client.get("/ready"),
            server.client.post("/hash", headers={"content-type": "image/png"}),
            server.client.post("/pad", json={}),
        ):
            assert problem_of(answer) == (503, "draining")
            assert answer.headers["connection"] == "close"
        assert server.client.get("/live").status_code == 200
