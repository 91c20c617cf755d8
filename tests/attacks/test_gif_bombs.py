"""A GIF of a hundred thousand frames of one pixel, or one that grows from frame to frame.

Frames are counted and their pixels summed before the first of them is kept.
"""

import base64
import json
import struct
from typing import Any

import pytest

from mmhash.engines.registry import find
from mmhash.errors import LimitError
from mmhash.prompts.media import MediaReader
from mmhash.requests import Document, read_for
from tests.support.responses import refusal_of


def gif(*frames: tuple[int, int], screen: tuple[int, int] = (1, 1)) -> bytes:
    head = b"GIF89a" + struct.pack("<HHBBB", *screen, 0x80, 0, 0) + bytes(6)
    pieces = [
        b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x02\x4c\x01\x00"
        for width, height in frames
    ]
    return head + b"".join(pieces) + b";"


@pytest.mark.parametrize(
    "bomb",
    [
        gif(*[(1, 1)] * 100_000),
        gif((65_535, 65_535)),
        gif((1, 1), (65_535, 65_535)),
        gif((1, 1), screen=(65_535, 65_535)),
    ],
    ids=["frames", "pixels", "growing", "screen"],
)
def test_it_is_refused(server: Any, bomb: bytes) -> None:
    before = server.memory()
    assert refusal_of(server.hash(bomb, "image/gif", of="pixels")) == "media-too-large"
    assert server.memory() - before < 64 << 20


def test_a_gif_in_a_request_to_plan_is_refused() -> None:
    bomb = base64.b64encode(gif(*[(1, 1)] * 9, screen=(9000, 9000))).decode()
    part = {"image_url": f"data:image/gif;base64,{bomb}"}
    document = Document(json.dumps({"messages": [{"content": [part]}]}).encode())
    request = read_for(document, *find("vllm@0.32.0"))
    reader = MediaReader(request, {}, of="pixels", tenant=None, model_type="qwen2_vl")
    with pytest.raises(LimitError, match="more than 178956970 pixels, all frames together"):
        reader.read(request.places[0].source)
