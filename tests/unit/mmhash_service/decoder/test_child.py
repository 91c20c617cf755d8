"""The messages of a decoder process, which the service does not trust."""

from typing import Any

import msgspec
import pytest

from mmhash_service.decoder import child


@pytest.mark.parametrize(
    "message",
    [
        {"type": "decoded", "frames": 0, "nbytes": 1, "digest": bytes(32), "extra": b""},
        {"type": "decoded", "frames": 10_001, "nbytes": 1, "digest": bytes(32), "extra": b""},
        {"type": "decoded", "frames": 1, "nbytes": -1, "digest": bytes(32), "extra": b""},
        {"type": "decoded", "frames": 1, "nbytes": 1, "digest": bytes(33), "extra": b""},
        {"type": "decoded", "frames": 1, "nbytes": 1, "digest": "00", "extra": b""},
        {"type": "refused", "problem": "unauthorized", "reason": ""},
        {"type": "refused", "problem": "damaged-media", "reason": "x" * 201},
        {"type": "deferred", "cost_s": float("nan")},
        {"type": "deferred", "cost_s": -1.0},
        {"type": "other"},
        [],
    ],
)
def test_a_message_out_of_bounds_is_no_answer(message: Any) -> None:
    with pytest.raises(msgspec.DecodeError):
        child._ANSWERS.decode(msgspec.msgpack.encode(message))
