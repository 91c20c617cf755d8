"""Messages requests for SGLang: what depends on the template, and what no plan knows.

`tests/live/test_forms.py` compares random requests with running engines.
"""

from typing import Any

import pytest

from mmhash.prompts import Model
from mmhash.requests import UnplannedError

_PATH = "/v1/messages"
_ENGINE = "sglang@0.5.23"
_USER = {"role": "user", "content": "hi"}
_SHOWN = "{% for one in messages %}{{ one | dictsort }}{% endfor %}"
_SYSTEM_FIRST = (
    "{% for one in messages %}"
    "{% if loop.first or one.role != 'system' %}{{ one | dictsort }}{% endif %}{% endfor %}"
)
_THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}


def check(model: Model, request: dict[str, Any], *shown: dict[str, Any], template: str) -> None:
    """Check the messages that a template gets."""
    plan = model.plan({"model": "m", **request}, _ENGINE, path=_PATH, chat_template=template)
    text = "".join(str(sorted(message.items())) for message in shown)
    assert plan.token_ids == model.files.encoder.encode(text, add_special_tokens=False)


def test_a_template_that_drops_system_messages_gets_one(model: Model) -> None:
    inline = {"role": "system", "content": [{"type": "text", "text": " b "}]}
    request = {"system": " a ", "messages": [_USER, inline, _USER]}
    joined = {"role": "system", "content": " a \nb"}
    check(model, request, joined, _USER, _USER, template=_SYSTEM_FIRST)
    kept = {"role": "system", "content": " b "}
    shown = ({"role": "system", "content": " a "}, _USER, kept, _USER)
    check(model, request, *shown, template=_SHOWN)


def test_thinking_is_planned_for_models_that_do_not_reason(model: Model) -> None:
    """Without a parser of reasoning the engine drops it; only a model that reasons has one."""
    said = {"role": "assistant", "content": [_THOUGHT, {"type": "text", "text": "so"}]}
    request = {"messages": [_USER, said, _USER], "thinking": {"type": "disabled"}}
    shown = (_USER, {"role": "assistant", "content": "so"}, _USER)
    check(model, request, *shown, template=_SHOWN)
    with pytest.raises(UnplannedError, match="thinking"):
        check(model, request, *shown, template=_SHOWN + "{{ enable_thinking }}")


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "document", "source": {"type": "base64", "data": "AAEC"}}],
        [{"type": "redacted_thinking", "data": "x"}],
        [{"type": "image", "source": {"type": "file", "file_id": "f"}}],
        [{"type": "tool_use", "name": "f", "input": {}}],
    ],
)
def test_other_content_is_refused(model: Model, content: Any) -> None:
    request = {"messages": [{"role": "user", "content": content}]}
    with pytest.raises(UnplannedError):
        model.plan(request, _ENGINE, path=_PATH)


def test_releases_that_were_not_compared_are_refused(model: Model) -> None:
    with pytest.raises(UnplannedError, match=r"0\.5\.23"):
        model.plan({"messages": [_USER]}, "sglang@0.5.22", path=_PATH)
