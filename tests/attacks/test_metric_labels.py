"""A million paths, methods or engines that nobody has, to fill the metrics and their server.

A label has only values that the service has: of paths those that are known, and `other`.
"""

from typing import Any

from tests.support.responses import refusal_of


def test_what_is_asked_for_makes_no_new_series(server: Any) -> None:
    server.client.get("/nothing")
    server.client.put("/hash")
    server.hash(b"", engines="nothing")
    server.hash(b"", "text/nothing")
    before = _series(server)
    for number in range(200):
        assert refusal_of(server.client.get(f"/nothing/{number}")) == "not-found"
        assert refusal_of(server.hash(b"", engines=f"flood@{number}")) == "unknown-engine"
        assert refusal_of(server.hash(b"", f"flood/{number}")) == "unsupported-media-type"
    for method in ("PUT", "PATCH", "DELETE", "PROPFIND", "LOCK"):
        assert refusal_of(server.client.request(method, "/hash")) == "method-not-allowed"
    assert _series(server) == before
    assert not any("flood" in series for series in before)


def _series(server: Any) -> set[str]:
    lines = server.client.get("/metrics").text.splitlines()
    return {line.rpartition(" ")[0] for line in lines if not line.startswith("#")}
