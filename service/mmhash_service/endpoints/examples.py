"""Examples of JSON bodies for OpenAPI and `/docs`. A test sends each of them."""

from typing import Any

_URL = "https://example.org/photo.png"
_KEY = "0f3e80300d68299e5b82028b5a8d7ba80df85ea3c212e44e298bc6ae728bac59"
_SPAN = {"start": 1, "end": 4, "key": _KEY}


def _chat(url: str) -> dict[str, Any]:
    parts = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    return {"model": "m", "messages": [{"role": "user", "content": parts}]}


HASH = {
    "url": {
        "summary": "An image by its URL, whose host must be in the setting url_hosts",
        "value": {"items": [{"kind": "bytes", "url": _URL}]},
    },
    "data": {
        "summary": "Bytes in base64",
        "value": {"items": [{"kind": "bytes", "name": "abc", "data": "YWJj"}]},
    },
    "tensor": {
        "summary": "A bundle of two tensors",
        "value": {
            "items": [
                {
                    "kind": "tensor",
                    "dtype": "uint8",
                    "shape": [4, 2],
                    "counts": [1, 3],
                    "data": "AAECAwQFBgc=",
                }
            ]
        },
    },
}
ANNOTATE = {
    "url": {
        "summary": "A chat with an image by its URL, whose host must be in the setting url_hosts",
        "value": _chat(_URL),
    },
    "data": {
        "summary": "A chat with an image in it",
        "value": _chat("data:image/png;base64,YWJj"),
    },
}
PAD = {
    "sglang": {
        "summary": "An item with three placeholders",
        "value": {"engine": "sglang", "input_ids": [1, 9, 9, 9, 2], "spans": [_SPAN]},
    }
}
BLOCKS = {
    "vllm": {
        "summary": "Two blocks of four tokens",
        "value": {
            "engine": "vllm",
            "input_ids": [1, 9, 9, 9, 2, 3, 4, 5],
            "block_size": 4,
            "spans": [_SPAN],
        },
    }
}
