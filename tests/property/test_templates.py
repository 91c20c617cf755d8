"""Random chat templates have the texts that jinja2 gives them in the environment of transformers."""

import json
import re
from random import Random
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from jinja2.ext import LoopControlExtension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mmhash.prompts import TemplateRenderError, UnknownModelError
from mmhash.prompts.templates import ChatTemplate

MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be <b>nice</b> & 'kind'"},
    {"role": "user", "content": [{"type": "text", "text": "h\u00e9\n llo"}, {"type": "image"}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"function": {"name": "f", "arguments": {"a": 1, "b": [1, 2.5, None, True]}}},
            {"function": {"name": "g", "arguments": '{"x": 1}'}},
        ],
    },
]
VALUES: dict[str, Any] = {
    "s": "Hello World", "html": "<a href='x'>&</a>", "blank": "  x y  \n", "e": "", "n": 3, "f": 2.5,
    "t": True, "no": None, "l": [3, 1, 2], "ls": ["b", "a", "c"], "d": {"b": 1, "a": 2},
    "same": {"a": 2, "b": 1},
}  # fmt: skip

# Forms of each kind of value: text, list, mapping, number, truth; letters in braces are values.
FORMS = {
    "S": """s;html;blank;e;'a.b';'<';messages[0].content;messages[0]['role'];{S}~{A};({S} + {S})
        ;({S}|upper);({S}|trim);({S}|title);({S}|safe);({S}|e);({S}|tojson);({S}|tojson|safe)
        ;({S}|replace('l', {S}));({S}|replace({S}, '<', 1));({S}|indent(2, true));({S}|default({S}, true))
        ;({L}|join({S}));({L}|map('string')|join('<'));({L}|tojson);({L}|string);({L}|length|string)
        ;(messages|join('/', attribute='content.0.type'));(messages|map(attribute='role')|join({S}))
        ;({S}).strip();({S}).split('l')[0];({S})[1:];({S})[::-1];({S} if {B} else {S});({L}|list|first|string)
        ;(messages|groupby('role')|map('first')|join(','));({A}|string);({A}|lower);('%s<%s'|format({A}, {S}))""",
    "L": """l;ls;messages;messages[1].content;[1, 'a', none];(1, 2);[];range(3);d.keys();d.items();same.items()
        ;d.values();({L}|list);({L}|reverse);({L}|reverse|list);({L}|unique);({L}|map('string'))
        ;({L}|select);({L}|reject('none'));({L}|select('string')|list);({L}|default([]));({S}).split()
        ;({D}|items);({D}|dictsort);(({L}|list) + ({L}|list));({L}|map('string')|sort);[{A}, {A}]
        ;messages[2].tool_calls""",
    "D": "d;same;messages[0];{{}};{{'q': {A}, {S}: 1}};dict({D}.items());dict(a={A})",
    "N": "n;f;1;2.5;-1;({L}|length);({L}|list|length);({S}|length);({N} + {N});({N} * {N});({N}|round);({N}|int)",
    "B": """t;no;e;undefined;({A} is defined);({A} is string);({A} is mapping);({A} is sequence);({A} is iterable)
        ;({A} == {A});({L} == {L});({L} != {L});({L} == []);({A} in {L});({S} in {S});({A} not in {L});({N} < {N})
        ;({S} < {S});({B} and {B});(not {B});({A} is in {L});({A} is eq {A})""",
}  # fmt: skip
CHOICES = {kind: re.split(r"\s*;\s*", forms) for kind, forms in FORMS.items()}
BLOCKS = (
    "{{{{ {A} }}}}", "  {{{{- {A} -}}}}\n", "\n{{{{ {S} }}}}  ", "{{% if {B} %}}{X}{{% else -%}}\n{X}{{% endif %}}",
    "{{%- for x in {L} %}}{{{{ loop.index }}}}{{{{ loop.last }}}}{{{{ x }}}}{X}{{% endfor %}}\n",
    "{{% for x in {L} if {B} -%}}{{{{ loop.length }}}}{{% break %}}{{% endfor %}}",
    "{{% for k, v in ({D}).items() %}}{{{{ k ~ v }}}}{{% endfor %}}", "{{% set y = {A} %}}{{{{ y }}}}{{{{ y }}}}",
    "{{% set y %}}{X}{{% endset %}}{{{{ y|trim }}}}", "{{% macro m(a, b=1) %}}{{{{ a }}}}{{{{ b }}}}{{% endmacro %}}{{{{ m({A}) }}}}",
    "{{% filter replace('a', 'b') %}}{X}{{% endfilter %}}", "<x>{{# c -#}}\n",
)  # fmt: skip


class _Forms(dict[str, str]):
    """Draws a value of the kind that a form names."""

    def __init__(self, random: Random, depth: int) -> None:
        super().__init__()
        self._random, self._depth = random, depth

    def __getitem__(self, kind: str) -> str:
        deeper = _Forms(self._random, self._depth + 1)
        if kind == "X":
            return self._random.choice(BLOCKS).format_map(deeper) if self._depth < 4 else "x"
        choices = CHOICES[self._random.choice("SLDNB") if kind == "A" else kind]
        plain = [form for form in choices if "{" not in form.replace("{{", "")]
        return self._random.choice(plain if self._depth > 3 else choices).format_map(deeper)


def _by_jinja2(source: str) -> str | None:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension]
    )
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    try:
        return environment.from_string(source).render(messages=MESSAGES, **VALUES)
    except Exception:  # noqa: BLE001  (as many kinds as Python has)
        return None


def _by_mmhash(source: str) -> str | None:
    try:
        return ChatTemplate(source).render(MESSAGES, **VALUES)
    except (TemplateRenderError, UnknownModelError) as error:
        if "not offered" in str(error):  # methods of texts that are marked as safe
            return "not offered"
        return None


@given(st.integers(0, 2**64))
def test_a_template_has_the_text_that_jinja2_gives_it(seed: int) -> None:
    random = Random(seed)
    source = "".join(random.choice(BLOCKS).format_map(_Forms(random, 0)) for _ in range(2))
    expected, found = _by_jinja2(source), _by_mmhash(source)
    assume(found != "not offered")
    assume(not re.search("0x|x0", expected or "", re.IGNORECASE))  # the address of an iterator
    assert found == expected, source
