"""Requests that must be refused: the problem's name, the path, and what is sent."""

from io import BytesIO
from typing import Any

from PIL import Image

_RAW = {"Content-Type": "application/octet-stream"}
_PNG = {"Content-Type": "image/png"}
_PIXELS = {"of": "pixels"}


def _truncated_png() -> bytes:
    file = BytesIO()
    Image.effect_noise((64, 64), 50).save(file, "PNG")
    return file.getvalue()[:1000]


def _items(**item: Any) -> dict[str, Any]:
    return {"json": {"items": [{"kind": "bytes"} | item]}}


_FORGED = {
    "transport": "shm",
    "name": "mmhash-1-1-0123456789abcdef",
    "offset": 0,
    "nbytes": 8,
    "dtype": "",
    "shape": [],
}

REFUSED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("not-found", "/hashes", {"content": b"abc"}),
    ("method-not-allowed", "/info", {"content": b"abc"}),
    ("unknown-tenant", "/hash", {"content": b"", "headers": _RAW | {"X-Mmhash-Tenant": "who"}}),
    ("invalid-query", "/hash", {"content": b"", "headers": _RAW, "params": {"algo": "xxh3"}}),
    ("invalid-tensor", "/hash", {"content": b"", "headers": _RAW, "params": {"dtype": "int8"}}),
    (
        "invalid-tensor",
        "/hash",
        {"content": b"abc", "headers": _RAW, "params": {"dtype": "int16", "shape": "2"}},
    ),
    ("unsupported-media-type", "/hash", {"content": b"", "headers": {"Content-Type": "text/css"}}),
    (
        "unsupported-encoding",
        "/hash",
        {"content": b"", "headers": _RAW | {"Content-Encoding": "br"}},
    ),
    ("unsupported-media-type", "/hash", {"content": b"text", "headers": _PNG, "params": _PIXELS}),
    ("damaged-media", "/hash", {"content": _truncated_png(), "headers": _PNG, "params": _PIXELS}),
    (
        "damaged-safetensors",
        "/hash",
        {
            "content": b"\x02" + bytes(7) + b"{}and more",
            "headers": {"Content-Type": "application/x-safetensors"},
        },
    ),
    (
        "damaged-multipart",
        "/hash",
        {"content": b"--b\r\n", "headers": {"Content-Type": "multipart/form-data; boundary=b"}},
    ),
    (
        "invalid-json",
        "/hash",
        {"content": b'{"items": [', "headers": {"Content-Type": "application/json"}},
    ),
    ("invalid-json", "/hash", _items()),
    ("invalid-base64", "/hash", _items(data="a")),
    ("invalid-url", "/hash", _items(url="http://127.1/")),
    ("url-off", "/hash", _items(url="http://127.0.0.1:1/")),
    ("url-off", "/hash", _items(url="file:///etc/passwd")),
    ("invalid-handle", "/hash", _items(shm=_FORGED)),
    (
        "refused-by-engine",
        "/pad",
        {"json": {"engine": "sglang", "input_ids": [1], "spans": [{"start": 0, "end": 1}]}},
    ),
    (
        "unknown-engine",
        "/blocks",
        {"json": {"engine": "vllm@0.0.1", "input_ids": [1], "block_size": 1}},
    ),
)
