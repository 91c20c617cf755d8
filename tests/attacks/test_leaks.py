"""Errors that reveal an address, a path or a version, to aim the next attack.

Each problem has a fixed text, never an exception's own (as in CVE-2026-22778).
"""

import re
from typing import Any

from mmhash_service.problems.catalogue import PROBLEMS

TELLING = re.compile(
    r"0x[0-9a-f]{6,}|/usr|/home|/dev/shm|site-packages|Error\(|Traceback|, line \d+|uvicorn|Pillow"
)


def test_a_problem_shows_only_its_fixed_text(server: Any) -> None:
    answers = [
        server.hash(b"\x89PNG\r\n\x1a\n" + bytes(40), "image/png", of="pixels"),
        server.hash(b"GIF89a", "image/gif", of="pixels"),
        server.hash(bytes(20), "application/x-safetensors"),
        server.hash(b"{", "application/json"),
        server.hash(b"x", "multipart/form-data; boundary=b"),
        server.hash_json({"kind": "bytes", "url": "http://localhost:1/secret"}),
        server.hash_json({"kind": "bytes", "url": "file:///etc/shadow"}),
        server.hash_json({"kind": "bytes", "shm": {}}),
        server.client.post("/pad", json={"engine": "sglang@0.0.0", "input_ids": [], "spans": []}),
        server.client.get("/../../etc/passwd"),
        server.client.delete("/hash"),
    ]
    fixed = {text.detail for text in PROBLEMS.values()}
    for answer in answers:
        assert 400 <= answer.status_code < 500
        assert answer.json()["detail"] in fixed
        assert not TELLING.search(answer.text)
        assert not TELLING.search(str(answer.headers))


def test_a_request_that_is_no_http_gets_a_fixed_text(server: Any) -> None:
    answer = server.send_raw(b"\0\1\2\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert not TELLING.search(answer.decode())
