"""Templates are rendered as transformers renders them, and hostile ones are in tests/attacks."""

import threading

import pytest

from mmhash.prompts.files import UnknownModelError
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
    assert ChatTemplate(source).content_format == expected


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
