"""Messages requests: which chat an engine makes of one, and what no plan knows.

`tests/live/test_forms.py` compares random requests with running engines.
"""

from typing import Any

import pytest

from mmhash.prompts import Model
from mmhash.requests import UnplannedError

_PATH = "/v1/messages"
_USER = {"role": "user", "content": "hi"}
# These refuse a system message that is not the first, as Qwen's do.
_SYSTEM_FIRST = (
    "{% for message in messages %}"
    "{% if message.role == 'system' and not loop.first %}{{ raise_exception('no') }}{% endif %}"
    "[{{ message.role }}:{{ message.content }}]{% endfor %}"
)
_SHOWS_EFFORT = "{{ reasoning_effort }}{{ enable_thinking }}"


def check(
    model: Model, engine: str, request: dict[str, Any], chat: dict[str, Any], **options: Any
) -> None:
    """Check that a Messages request is planned as a chat."""
    whole = {"model": "tiny", "max_tokens": 1, "messages": [_USER], **request}
    plan = model.plan(whole, engine, path=_PATH, **options)
    assert plan.token_ids == model.plan({"messages": [_USER], **chat}, engine, **options).token_ids


def test_a_template_that_takes_system_messages_first_gets_one(model: Model) -> None:
    request = {
        "system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        "messages": [_USER, {"role": "system", "content": "c"}, _USER],
    }
    chat = [{"role": "system", "content": "abc"}, _USER, _USER]
    check(model, "vllm@0.32.0", request, {"messages": chat}, chat_template=_SYSTEM_FIRST)
    chat = [
        {"role": "system", "content": "ab"}, _USER, {"role": "system", "content": "c"}, _USER,
    ]  # fmt: skip
    check(model, "vllm@0.32.0", request, {"messages": chat})


@pytest.mark.parametrize(
    ("template", "effort"),
    [
        (_SHOWS_EFFORT, "none"),
        # Unknown efforts are shown as another one, as GLM's templates do, or are an error.
        ("{{ 'low' if reasoning_effort == 'low' else 'max' }}", "low"),
        (
            f"{{% if reasoning_effort == 'none' %}}{{{{ fail() }}}}{{% endif %}}{_SHOWS_EFFORT}",
            "low",
        ),
    ],
)
def test_disabled_thinking_is_an_effort_that_the_template_knows(
    model: Model, template: str, effort: str
) -> None:
    request = {"thinking": {"type": "disabled"}, "output_config": {"effort": "max"}}
    check(model, "vllm@0.32.0", request, {"reasoning_effort": effort}, chat_template=template)


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "document", "source": {"type": "base64", "data": "AAEC"}}],
        [{"type": "image", "source": {"type": "file", "file_id": "f"}}],
        [{"type": "image", "source": {"type": "base64", "media_type": "a,b", "data": "AAEC"}}],
        [{"type": "tool_use", "name": "f", "input": {}}],
        [{"text": "no type"}],
        7,
    ],
)
@pytest.mark.parametrize("engine", ["vllm@0.32.0"])
def test_other_content_is_refused(model: Model, engine: str, content: Any) -> None:
    request = {"messages": [{"role": "user", "content": content}]}
    with pytest.raises(UnplannedError):
        model.plan(request, engine, path=_PATH)


def test_older_releases_are_refused(model: Model) -> None:
    with pytest.raises(UnplannedError, match=r"0\.32"):
        model.plan({"messages": [_USER]}, "vllm@0.31.0", path=_PATH)


def test_blocks_end_before_an_image_that_has_no_hash(model: Model) -> None:
    data = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
    source = {"type": "base64", "media_type": "image/png", "data": data}
    content = [{"type": "text", "text": "x" * 100}, {"type": "image", "source": source}]
    request = {"messages": [{"role": "user", "content": content}]}
    plan = model.plan(request, "vllm@0.32.0", path=_PATH, block_size=16)
    (item,) = plan.items
    assert len(plan.blocks) == item.start // 16
    assert plan.request == request
