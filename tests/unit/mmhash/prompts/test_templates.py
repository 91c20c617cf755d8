"""Templates are rendered as transformers renders them, and hostile ones are in tests/attacks."""

import json
import threading
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mmhash.prompts.files import UnknownModelError
from mmhash.prompts.templates import ChatTemplate, TemplateRenderError

USER = [{"role": "user", "content": "hi"}]


def test_blocks_are_trimmed() -> None:
    source = "  {% for m in messages %}\n{{ m.content }}\n    {% endfor %}\nend"
    assert ChatTemplate(source).render(USER) == "hi\nend"


VALUES: dict[str, Any] = {
    "d": {"b": 1, "a": 2},
    "same": {"a": 2, "b": 1},
    "html": "<a href='x'>&",
    "calls": [{"function": {"name": "f", "n": 1}}, {"function": {"name": "g", "n": 2}}],
    "rows": ["b", "a", "c"],
}


def _rendered_by_jinja2(source: str) -> str:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = json.dumps
    return environment.from_string(source).render(messages=USER, **VALUES)


@pytest.mark.parametrize(
    "value",
    [
        "html | e | replace('l', '&', 1)",
        "html | tojson | safe | replace('x', '<')",
        "html | replace('x', html | e)",
        "13 | replace(1, 2)",
        "rows | join(html | safe)",
        "rows | map('e') | join('<')",
        "rows | join(7)",
        "('%s<' | safe) | format('<')",
        "(html | safe | indent(2, true)) + '<'",
        "[html] | map('upper') | map('e') | join",
        "calls | join(',', attribute='function.name')",
        "calls | sum(attribute='function.n')",
        "d.items() == same.items()",
        "d.keys() == ['b', 'a']",
        "['b', 'a'] == d.keys()",
        "range(2) == [0, 1]",
        "range(2) in [[0, 1]]",
        "rows | select == rows",
        "rows | select != []",
        "'a' in rows | select",
        "'z' in rows | select",
        "'a' in d.keys()",
        "('a', 2) in d.items()",
        "1 in d.values()",
        "(d.items() | default([])) == same.items()",
        "d.values() | upper",
        "range(3) | default(0)",
        "(range(3) | e) ~ (d.keys() | title)",
        "(rows | select | reverse)[0]",
        "(rows | select | reverse) | string",
        "d.items() | reverse | list",
        "(rows | select | default([], true)) | first",
        "rows | select | map('upper') | reject('equalto', 'A') | list",
        "rows | select | unique | sort | list",
        "rows | map('length') | max",
        "dict(d.items())",
        "dict(rows | map('list') | map('last') | map('upper') | groupby(0))",
        "namespace(d.items()).a",
        "d.items() | length",
        "d.values() | sum",
        "d.keys() | sort",
    ],
)
def test_values_are_those_of_jinja2(value: str) -> None:
    """The environment is that of transformers."""
    source = f"{{{{ {value} }}}}"
    assert ChatTemplate(source).render(USER, **VALUES) == _rendered_by_jinja2(source)


def test_an_iterator_is_read_once() -> None:
    source = "{% set a = rows | select %}{{ a | first }}{{ a | first }}{{ a | list }}"
    assert ChatTemplate(source).render(USER, **VALUES) == _rendered_by_jinja2(source)


def test_what_fails_there_fails_here() -> None:
    with pytest.raises(TemplateRenderError, match="has no len"):
        ChatTemplate("{{ rows | select | length }}").render(USER, **VALUES)


def test_json_is_not_escaped() -> None:
    assert ChatTemplate("{{ x | tojson }}").render(USER, x="<\u00e9&>") == '"<\u00e9&>"'


def test_the_final_message_is_continued() -> None:
    template = ChatTemplate("{% for m in messages %}<{{ m.content }}>{% endfor %}")
    assert template.render([*USER, *USER], continue_final_message=True) == "<hi><hi"


def test_a_final_message_that_is_left_out_is_refused() -> None:
    with pytest.raises(TemplateRenderError, match="leaves out"):
        ChatTemplate("{{ messages | length }}").render(USER, continue_final_message=True)


def test_the_template_refuses_a_request() -> None:
    with pytest.raises(TemplateRenderError, match="no system"):
        ChatTemplate("{{ raise_exception('no system') }}").render(USER)


def test_unknown_filters_are_refused_at_load() -> None:
    with pytest.raises(UnknownModelError, match="center"):
        ChatTemplate("{{ 'a' | center(3) }}")


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


def test_threads_have_budgets_of_their_own() -> None:
    template = ChatTemplate("{% for a in range(90000) %}{{ a % 7 }}{% endfor %}")
    texts: list[str] = []
    threads = [
        threading.Thread(target=lambda: texts.extend(template.render(USER) for _ in range(3)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 12
    assert len(set(texts)) == 1
