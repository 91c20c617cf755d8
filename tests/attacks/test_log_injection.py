"""Line breaks, colours and false fields in what a client sends, to forge lines of the log.

A line of the log is one JSON object, and of what clients choose it has only ids that are plain words.
"""

import json

from tests.support.service import TIMEOUT_S
from tests.support.victim import serving

FORGED = '\r\n{"level": "error", "message": "forged"}\x1b[31m forged'


def test_nothing_that_is_sent_makes_a_line() -> None:
    with serving() as server:
        raw = FORGED.encode().replace(b"\r\n", b"\n")
        server.client.post("/hash" + "/%0d%0aforged", content=b"")
        server.hash(raw, "image/png", of="pixels", name=FORGED)
        server.hash(raw, "image/png", of="pixels")
        server.hash(raw, "application/json")
        server.hash(raw, "application/x-safetensors")
        server.hash_json({"kind": "bytes", "data": FORGED, "name": FORGED})
        server.hash_json({"kind": "bytes", "url": "http://forged/" + FORGED})
        server.hash_json({"kind": "bytes", "url": "file:///forged" + FORGED})
        server.hash_json({"kind": "bytes", "shm": {"forged": FORGED}})
        server.client.post("/hash", files={FORGED: (FORGED, b"abc", "text/forged")})
        server.client.post(
            "/annotate?engine=vllm", json={"messages": [{"content": FORGED}], FORGED: 1}
        )
        for name in (
            b"User-Agent",
            b"X-Request-Id",
            b"X-Mmhash-Tenant",
            b"Content-Type",
            b"Cookie",
        ):
            server.send_raw(
                b"POST /hash HTTP/1.1\r\nConnection: close\r\nContent-Length: 0\r\n"
                + name
                + b": \x1b[31m{forged}\r\n\r\n"
            )
            server.send_raw(b"POST /hash HTTP/1.1\r\n" + name + b": forged\x00\r\n\r\n")
        server.send_raw(b"FORGED forged\r\n\r\n")
        server.end()
        assert server.process.wait(TIMEOUT_S) == 0
        for line in server.log:
            json.loads(line)
            assert "forged" not in line.lower(), line
        assert any("POST" in line for line in server.log)
        server.assert_well = lambda: None  # it has ended well, as was seen
