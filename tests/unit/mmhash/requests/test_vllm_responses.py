"""Responses requests for vLLM: the places of hashes, and what no plan knows.

`tests/live/test_forms.py` compares random requests with running engines.
"""

from typing import Any

import pytest

import mmhash
from mmhash.prompts import Model
from mmhash.requests import UnplannedError
from tests.support.annotated import annotate

_PATH = "/v1/responses"
_URL = "data:image/png;base64,AAEC"


def test_images_of_messages_and_of_outputs_get_a_uuid() -> None:
    part = {"type": "input_image", "image_url": _URL, "detail": "low"}
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}, {**part, "uuid": "x"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [part]},
    ]
    answer = annotate("vllm", {"input": items})
    named = {**part, "uuid": mmhash.key(b"\0\1\2").hex()}
    first, call, output = answer["request"]["input"]
    assert first["content"] == [{"type": "input_text", "text": "hi"}, named]
    assert call == items[1]
    assert output["output"] == [named]


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": [{"type": "reasoning", "encrypted_content": "x"}]}, "encrypted"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "'item_reference'"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "image",
        ),
        ({"input": [7]}, "object"),
        ({"input": 7}, "input"),
    ],
)
def test_a_request_that_no_plan_covers_is_refused(
    model: Model, members: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnplannedError, match=reason):
        model.plan({"input": "hi", **members}, "vllm@0.32.0", path=_PATH)
