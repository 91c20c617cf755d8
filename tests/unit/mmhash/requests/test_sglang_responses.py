"""Responses requests for SGLang: the places of hashes, releases, and what no plan knows.

`tests/live/test_forms.py` compares random requests with running engines.
"""

import hashlib
from typing import Any

import pytest

from mmhash.prompts import Model
from mmhash.requests import UnplannedError
from tests.support.annotated import annotate

_PATH = "/v1/responses"
_URL = "data:image/png;base64,AAEC"


def test_only_an_image_s_object_has_place_for_a_hash() -> None:
    text = {"type": "input_image", "image_url": _URL}
    object_ = {"type": "input_image", "image_url": {"url": _URL, "content_hash": "forged"}}
    request = {"input": [{"role": "user", "content": [text, object_]}]}
    answer = annotate("sglang@0.5.23", request)
    name = f"sha256:{hashlib.sha256(bytes((0, 1, 2))).hexdigest()}"
    named = {"type": "input_image", "image_url": {"url": _URL, "content_hash": name}}
    assert answer["request"]["input"][0]["content"] == [text, named]


@pytest.mark.parametrize(
    ("release", "contents"),
    [("0.5.23", ["a", "hi", "Developer instructions:\nb"]), ("0.5.20", None)],
)
def test_system_messages_are_joined_as_the_release_does(
    model: Model, release: str, contents: list[str] | None
) -> None:
    items = [{"role": "user", "content": "hi"}, {"role": "developer", "content": "b"}]
    plan = model.plan(
        {"instructions": "a", "input": items},
        f"sglang@{release}",
        path=_PATH,
        chat_template="{% for one in messages %}{{ one.content }}|{% endfor %}",
    )
    contents = contents or ["a\n\nDeveloper instructions:\nb", "hi"]
    text = "".join(f"{one}|" for one in contents)
    assert plan.token_ids == model.files.encoder.encode(text, add_special_tokens=False)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "'item_reference'"),
        ({"tools": [{"type": "shell"}]}, "shell"),
        (
            {"input": [{"type": "reasoning", "encrypted_content": "sglang-reasoning-v1.x"}]},
            "encrypted",
        ),
    ],
)
def test_a_request_that_no_plan_covers_is_refused(
    model: Model, members: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UnplannedError, match=reason):
        model.plan({"input": "hi", **members}, "sglang@0.5.23", path=_PATH)
