"""Templates are rendered as transformers renders them. tests/vectors has real prompts of vLLM."""

import pytest

from mmhash.errors import LimitError
from mmhash.prompts.limits import MAX_TEXT
from mmhash.prompts.section import UnknownModelError
from mmhash.prompts.templates import ChatTemplate, TemplateRenderError

USER = [{"role": "user", "content": "hi"}]


def test_blocks_are_trimmed() -> None:
    source = "  {% for m in messages %}\n{{ m.content }}\n    {% endfor %}\nend"
    assert ChatTemplate(source).render(USER) == "hi\nend"


def test_json_is_not_escaped() -> None:
    assert ChatTemplate("{{ x | tojson }}").render(USER, x="<\u00e9&>") == '"<\u00e9&>"'


def test_the_final_message_is_continued() -> None:
    template = ChatTemplate("{% for m in messages %}<{{ m.content }}>{% endfor %}")
    assert template.render([*USER, *USER], continue_final_message=True) == "<hi><hi"


def test_a_final_message_that_is_left_out_is_refused() -> None:
    with pytest.raises(TemplateRenderError, match="continue"):
        ChatTemplate("{{ messages | length }}").render(USER, continue_final_message=True)


def test_the_template_refuses_a_request() -> None:
    with pytest.raises(TemplateRenderError, match="no system"):
        ChatTemplate("{{ raise_exception('no system') }}").render(USER)


def test_the_generation_tag_and_loop_controls_change_no_text() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'tool' %}{% continue %}{% endif %}"
        "{% generation %}{% set x = 1 %}{{ m.content }}{% endgeneration %}{{ x }}{% endfor %}"
    )
    messages = [{"role": "tool", "content": "no"}, *USER]
    assert ChatTemplate(source).render(messages) == "hi"


@pytest.mark.parametrize("source", ["{% for a in b %}", "{{ 'a' | nope }}", "{% nope %}"])
def test_a_malformed_template_is_refused_at_load(source: str) -> None:
    with pytest.raises(UnknownModelError, match="not usable"):
        ChatTemplate(source)


@pytest.mark.parametrize(
    "source",
    ["{{ messages.append(1) }}", "{{ messages[0].a.b }}", "{{ 1 / 0 }}", "{{ messages | tojson(indent=-1, sort_keys=0, x=1) }}"],
)  # fmt: skip
def test_a_template_that_fails_is_a_named_error(source: str) -> None:
    with pytest.raises(TemplateRenderError, match="failed"):
        ChatTemplate(source).render(USER)


def test_the_length_of_the_text_is_limited() -> None:
    """A chat's template may repeat what a request has, so a request's size does not bound it."""
    template = ChatTemplate("{% for i in range(n) %}{{ messages[0].content }}{% endfor %}")
    messages = [{"role": "user", "content": "a" * (MAX_TEXT // 4)}]
    assert len(template.render(messages, n=4)) == MAX_TEXT
    with pytest.raises(LimitError, match="4194304 characters"):
        template.render(messages, n=99_999)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "string"),
        ("{% for m in messages %}{% for c in m['content'] %}{% endfor %}{% endfor %}", "openai"),
        ("{% set rest = messages[1:] %}{% for m in rest %}{% for c in m.content | list %}{% endfor %}{% endfor %}", "openai"),
        ("{% for c in content %}{% endfor %}", "openai"),
        ("{% macro f(content) %}{% for c in content %}{% endfor %}{% endmacro %}", "string"),
        ("{% macro f(x) %}{% for c in x %}{% endfor %}{% endmacro %}{% for m in messages %}{{ f(m.content) }}{% endfor %}", "openai"),
        ("{% set a = b %}{% set b = a %}{% set a = messages %}{% for m in b %}{% for c in m.content %}{% endfor %}{% endfor %}", "openai"),
        ("{% set ns.rest = messages %}{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}", "string"),
        ("{% for m, n in messages %}{% for c in content %}{% endfor %}{% endfor %}", "string"),
        ("{% for m, n in others %}{% for c in content %}{% endfor %}{% endfor %}", "openai"),
    ],
)  # fmt: skip
def test_content_format(source: str, expected: str) -> None:
    assert ChatTemplate(source).content_format("vllm", "0.32.0") == expected


@pytest.mark.parametrize(
    ("source", "older", "newer"),
    [
        ("{% macro f(x) %}{% for c in x %}{% endfor %}{% endmacro %}{% for m in messages %}{{ f(m.content) }}{% endfor %}", "string", "openai"),
        ("{% macro f(content) %}{% for c in content %}{% endfor %}{% endmacro %}{% for m in messages %}{% set x = m.content %}{{ f(x) }}{% endfor %}", "openai", "string"),
        ("{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}", "openai", "openai"),
        # vLLM fails at these targets, and takes the default.
        ("{% set ns.m = messages %}{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}", "string", "string"),
        ("{% for m in messages %}{% for a, b in m.content %}{% endfor %}{% endfor %}", "string", "string"),
        ("{% for m, n in messages | items %}{% endfor %}{% for c in content %}{% endfor %}", "string", "string"),
    ],
)  # fmt: skip
def test_the_content_format_of_vllm_changed_with_0_30(source: str, older: str, newer: str) -> None:
    template = ChatTemplate(source)
    assert template.content_format("vllm", "0.29.0") == older
    assert template.content_format("vllm", "0.30.0") == newer


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for c in message.content | list %}{% endfor %}", ["openai"] * 3),
        ("{% for c in m['content'] %}{% endfor %}", ["string", "openai", "openai"]),
        ("{{ vision }}", ["string", "string", "openai"]),
        ("{% for x in messages %}{% for c in x.content %}{% endfor %}{% endfor %}", ["string"] * 3),
        ("{% for c in content %}{% endfor %}", ["string"] * 3),
    ],
)
def test_the_content_format_of_sglang(source: str, expected: list[str]) -> None:
    template = ChatTemplate(source)
    releases = ("0.5.0", "0.5.2", "0.5.23")
    assert [template.content_format("sglang", release) for release in releases] == expected
