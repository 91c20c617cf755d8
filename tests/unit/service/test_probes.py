"""The probes: that the server answers, and what it is."""

import platform

import httpx

import mmhash
from mmhash.framing import SPEC_VERSION


def test_health(client: httpx.Client) -> None:
    answer = client.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_version(client: httpx.Client) -> None:
    answer = client.get("/version")
    assert answer.status_code == 200
    assert answer.json() == {
        "mmhash": mmhash.__version__,
        "spec": SPEC_VERSION,
        "python": platform.python_version(),
    }
