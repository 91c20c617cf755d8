"""A chat template that reaches the system, runs for hours or makes gigabytes.

Only listed filters and methods exist, and each step and each new value spends from a budget.
"""

import time

import pytest

from mmhash.errors import LimitError
from mmhash.prompts import TemplateRenderError, UnknownModelError
from mmhash.prompts.sandbox import MAX_TEXT
from mmhash.prompts.templates import MAX_SOURCE, ChatTemplate

# Python's hash of an integer is its remainder by this one.
PRIME = (1 << 61) - 1
TUPLES = "{% set ns = namespace(x=(1,)) %}{% for a in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}"

LONG_TEXTS = "{% set l = ['a' * 4000000] * 999999 %}"  # 4 TB, if they are written

# Each would take gigabytes or hours without limits; a bounded one takes about 2 s at most here.
ENDLESS = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "loops in an expression": "{% for a in range(99999) %}{{ range(99999) | sum }}{% endfor %}",
    "empty loop with a filter": (
        "{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}{% endfor %}"
    ),
    "many ranges": "{% for a in range(99999) %}{% set b = range(99999) | list %}{% endfor %}",
    "macro that calls itself twice": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}"
    ),
    "macro that calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "caller that calls itself": (
        "{% macro f(n) %}{% call f(n + 1) %}{% endcall %}{{ caller() }}{% endmacro %}"
        "{% call f(1) %}{% endcall %}"
    ),
    "doubling": "{% set ns = namespace(x='aa') %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "doubling with plus": (
        "{% set ns = namespace(x='aa') %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"
    ),
    "doubling a block": (
        "{% set ns = namespace(x='aa') %}{% for a in range(99) %}"
        "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}"
    ),
    "doubling by a macro": (
        "{% macro two(x) %}{{ x }}{{ x }}{% endmacro %}{% set ns = namespace(x='aa') %}"
        "{% for a in range(99) %}{% set ns.x = two(ns.x) %}{% endfor %}"
    ),
    "doubling by replace": (
        "{% set ns = namespace(x='aa') %}"
        "{% for a in range(99) %}{% set ns.x = ns.x | replace('a', 'aaaaaaaaaa') %}{% endfor %}"
    ),
    "doubling by join": (
        "{% set ns = namespace(x='aa') %}{% for a in range(99) %}{% set ns.x = [ns.x, ns.x] | join %}{% endfor %}"
    ),
    "doubling by the method join": (
        "{% set ns = namespace(x='aa') %}{% for a in range(99) %}{% set ns.x = ns.x.join([ns.x, ns.x]) %}{% endfor %}"
    ),
    "doubling lists": (
        "{% set ns = namespace(x=[1]) %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}"
    ),
    "a list of itself, written": (
        "{% set ns = namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
        "{{ ns.x }}"
    ),
    "a list of itself, as JSON": (
        "{% set ns = namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
        "{{ ns.x | tojson }}"
    ),
    "lists of themselves, compared": (
        "{% set ns = namespace(x=[1], y=[1]) %}{% for a in range(60) %}"
        "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}"
    ),
    "lists of themselves, searched": (
        "{% set ns = namespace(x=[1], y=[1]) %}{% for a in range(60) %}"
        "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x in [ns.y] }}"
    ),
    "a list of itself, in a text": (
        "{% set ns = namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
        "{{ 'a' ~ ns.x }}"
    ),
    "a list of itself, formatted": (
        "{% set ns = namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
        "{{ '%s' | format(ns.x) }}"
    ),
    "a list of itself, by default and string": (
        "{% set ns = namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}"
        "{{ ns.x | default('') | string }}"
    ),
    **{
        f"a list of long texts, {name}": f"{LONG_TEXTS}{source}"
        for name, source in {
            "in capitals": "{{ l | upper }}",
            "escaped": "{{ l | e }}",
            "marked safe": "{{ l | safe }}",
            "in words": "{{ l | wordcount }}",
            "in an error": "{{ raise_exception(l) }}",
            "as an index": "{{ {}[l].x }}",
            "as an attribute": "{{ '' | attr(l) }}",
            "in the values of a dict": "{{ {'a': l}.values() }}",
            "in the items of a dict": "{{ [{'a': l}.items()] }}",
            "in the items of a dict, in a text": "{{ '%s' | format({'a': l}.items()) }}",
            "in a namespace": "{{ namespace(x=l) }}",
            "in a namespace, in a list": "{{ [namespace(x=l)] }}",
            "in a namespace of itself": "{% set ns = namespace(x=l) %}{% set ns.y = ns %}{{ ns }}",
        }.items()
    },
    "a dict written often": (
        "{% set d = {'a': 'a' * 1000000} %}{% for a in range(99999) %}{{ d }}{% endfor %}"
    ),
    "a namespace written often": (
        "{% set ns = namespace(a='a' * 1000000) %}{% for a in range(99999) %}{{ ns }}{% endfor %}"
    ),
    "values of a dict written often": (
        "{% set d = {'a': 'a' * 1000000}.values() %}{% for a in range(99999) %}{{ d }}{% endfor %}"
    ),
    "long ranges compared": (
        "{% set r = range(99999) %}{% for a in range(99999) %}{{ 'a' in r }}{% endfor %}"
    ),
    "long ranges filtered": (
        "{% set r = range(99999) %}{% for a in range(99999) %}"
        "{{ r | select('string') | map('upper') | first }}{% endfor %}"
    ),
    "a deep list": (
        "{% set ns = namespace(x=[1]) %}{% for a in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}"
        "{{ ns.x }}"
    ),
    "product": "{{ 'a' * 10**9 }}",
    "product of a list": "{{ [0] * 10**9 }}",
    "product of a number and a text": "{{ 10**9 * 'a' }}",
    "power": "{{ 10 ** 10 ** 10 }}",
    "growing number": (
        "{% set ns = namespace(x=10) %}{% for a in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}{{ ns.x }}"
    ),
    "wide column": "{{ '%999999999d' % 1 }}",
    "wide column by argument": "{{ '%*d' % (999999999, 1) }}",
    "wide column of the filter": "{{ '%999999999d' | format(1) }}",
    "wide column of str.format": "{{ '{:999999999}'.format(1) }}",
    "nested column of str.format": "{{ '{:{}}'.format(1, 999999999) }}",
    "precision": "{{ '%.999999999f' % 1.5 }}",
    "many fields": ("{% set x = 'a' * 1000000 %}{% set y = '{0}' * 100000 %}{{ y.format(x) }}"),
    "wide centre": "{{ 'a'.center(10**9) }}",
    "wide left": "{{ 'a'.ljust(10**9) }}",
    "wide zeros": "{{ 'a'.zfill(10**9) }}",
    "wide tabs": "{{ '\t'.expandtabs(10**9) }}",
    "wide filter": "{{ 'a' | center(10**9) }}",
    "wide indent": "{{ ('a\n' * 9999) | indent(10**9) }}",
    "wide JSON": "{{ [1] | tojson(indent=10**9) }}",
    "precise round": "{{ 1.5 | round(10**9, 'ceil') }}",
    "long range": "{{ range(10**12) | list }}",
    "lorem ipsum": "{{ lipsum(n=10**9) }}",
    "batch": "{{ [1] | batch(10**9, 'x') | list }}",
    "slice": "{{ [1] | slice(10**9, 'x') | list }}",
    "sum of lists": "{{ ([[1] * 99999] * 999) | sum(start=[]) }}",
    "long search": (
        "{% set x = 'ab' * 2000000 %}{% for a in range(99999) %}{% if 'ba' * 99 ~ 'c' in x %}{% endif %}{% endfor %}"
    ),
    "long copies": "{% set x = 'ab' * 2000000 %}{% for a in range(99999) %}{% set y = x[1:] %}{% endfor %}",
    "long upper": "{% set x = 'ab' * 2000000 %}{% for a in range(99999) %}{% set y = x | upper %}{% endfor %}",
    "long split": "{% set x = 'ab' * 2000000 %}{% for a in range(99999) %}{% set y = x.split('a') %}{% endfor %}",
    "long sort": (
        "{% set x = range(99999) | list %}{% for a in range(99999) %}{% set y = x | sort %}{% endfor %}"
    ),
    "integers of one hash": f"{{{{ range(0, {PRIME * 99999}, {PRIME}) | unique | list }}}}",
    "a tuple of itself, looked up": f"{TUPLES}{{{{ {{}}.get(ns.x) }}}}",
    "a tuple of itself, as an index": f"{TUPLES}{{{{ messages[0][ns.x] }}}}",
    "a tuple of itself, by its pairs": (
        "{% set ns = namespace(x=(1,)) %}{% for a in range(60) %}"
        "{% set ns.x = ({ns.x: ns.x}.items() | list)[0] %}{% endfor %}"
    ),
    "a tuple of itself, by arguments": (
        "{% macro f(n) %}{{ f(n - 1, varargs, varargs) if n else {}.get(varargs) }}{% endmacro %}{{ f(60) }}"
    ),
    "a tuple of itself, in a dict": f"{TUPLES}{{% if ns.x in {{}} %}}{{% endif %}}",
    "a list of itself, on the left": (
        "{% set ns = namespace(x=[1], y=[1]) %}{% for a in range(60) %}"
        "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}"
        "{{ ns.x in [ns.y] | map('default', 0) }}"
    ),
    "lists of themselves, as a loop changes": (
        "{% set ns = namespace(x=[1], y=[1]) %}{% for a in range(60) %}"
        "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}"
        "{% for a in [ns.x, ns.y] %}{{ loop.changed(a) }}{% endfor %}"
    ),
    "search from the right": "{{ ('a' * 2000000).rfind('ab' ~ 'a' * 1000000) }}",
    "split from the right": "{{ ('a' * 2000000).rsplit('ab' ~ 'a' * 1000000) }}",
    "strip by many characters": "{{ ('a' * 2000000).strip('b' * 1000000 ~ 'a') }}",
    "trim by many characters": "{{ ('a' * 2000000) | trim('b' * 1000000 ~ 'a') }}",
    "many arguments": (
        "{% set r = range(99999) %}{% for a in range(99999) %}{% set c = cycler(*r) %}{% endfor %}"
    ),
    "many arguments of a loop": (
        "{% set r = range(99999) %}{% for a in range(99999) %}{{ loop.cycle(*r) }}{% endfor %}"
    ),
    "long lists of characters": (
        "{% set ns = namespace(l=[]) %}{% set x = '\u4e00' * 4000000 %}"
        "{% for a in range(99) %}{% set ns.l = ns.l + [x | list] %}{% endfor %}"
    ),
    "recursive loop": "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "recursive block": "{% block b %}{{ self.b() }}{% endblock %}",
    "date": "{{ strftime_now('%A' * 999999) }}",
    "many copies in one line": "{% set x = 'ab' * 2000000 %}" + "{% set y = x[1:] %}" * 9000,
    "map": "{{ range(99999) | map('string') | map('replace', '1', 'a' * 99999) | join }}",
}

OUTSIDE = {
    "class": "{{ ''.__class__.__mro__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "globals": "{{ raise_exception.__globals__ }}{{ raise_exception.__globals__['x'] }}",
    "attr": "{{ (''|attr('__class__'))() }}",
    "map attribute": "{{ ([''] | map(attribute='__class__') | first)() }}",
    "format": "{{ '{0.__class__.__mro__}'.format('').missing.missing }}{{ 1/0 }}",
    "format_map": "{{ '{x.__class__.__mro__.y}'.format_map({'x': ''}).z.z }}",
    "cycler": "{{ cycler.__init__.__globals__.os.system('true') }}",
    "self": "{{ self._TemplateReference__context.environment.spend(1) }}",
    "environment": "{{ loop.environment() }}",
    "import": "{% import 'os' as os %}",
    "include": "{% include '/etc/passwd' %}",
    "extends": "{% extends '/etc/passwd' %}",
    "steal the budget": "{{ environment.spend(-10**9) }}",
    "own budget": "{{ self.environment.work_left }}{{ self.environment() }}",
    "joiner": "{{ joiner.__call__.__globals__['sys']() }}",
    "change a message": "{{ messages.append(1) }}",
    "change a dict": "{{ messages[0].update({'a': 1}) }}",
    "encode": "{{ 'a'.encode('utf-8') }}",
    "range of a class": "{{ range.__class__('x') }}",
    "fromkeys": "{{ dict.fromkeys([1]) }}",
    "from_bytes": "{{ (1).from_bytes([1], 'big') }}",
}

BROKEN = {
    "too long": "a" * (MAX_SOURCE + 1),
    "unclosed": "{% for a in b %}",
    "nested brackets": "{{ " + "(" * 9000 + ")" * 9000 + " }}",
    "nested blocks": "{% if a %}" * 3000 + "{% endif %}" * 3000,
    "long sum": "{{ " + "+".join(["a"] * 20000) + " }}",
    "unknown filter": "{{ 'a' | nope }}",
    "unknown tag": "{% nope %}",
}

# These spend the whole budget, which takes half a second to two.
LONG = {
    "empty loop with a filter",
    "macro that calls itself twice",
    "a deep list",
    "long search",
    "long sort",
    "a tuple of itself, as an index",
    "a tuple of itself, by its pairs",
    "a tuple of itself, in a dict",
    "many arguments",
    "many arguments of a loop",
}


def _run(source: str) -> str:
    return ChatTemplate(source).render([{"role": "user", "content": "hi"}], bos_token="<s>")


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(source, id=name, marks=[pytest.mark.slow] if name in LONG else [])
        for name, source in ENDLESS.items()
    ],
)
def test_work_and_size_are_bounded(source: str) -> None:
    started = time.process_time()
    with pytest.raises((LimitError, TemplateRenderError, UnknownModelError)) as raised:
        _run(source)
    assert "MemoryError" not in str(raised.value)
    # Not a measurement: without the limits each takes minutes, or all memory.
    assert time.process_time() - started < 60


@pytest.mark.parametrize("call", ["select('string')", "rejectattr('a')", "map('upper')"])
def test_filters_that_call_a_function_spend_for_each_element(call: str) -> None:
    source = "{% set r = range(99999) | list %}{% for a in range(9) %}{{ r | CALL | list | length }}{% endfor %}"
    with pytest.raises(LimitError):
        _run(source.replace("CALL", call))


@pytest.mark.parametrize("source", OUTSIDE.values(), ids=OUTSIDE)
def test_nothing_outside_is_reached(source: str) -> None:
    with pytest.raises((TemplateRenderError, UnknownModelError)):
        _run(source)


@pytest.mark.parametrize("source", BROKEN.values(), ids=BROKEN)
def test_no_template_is_named(source: str) -> None:
    with pytest.raises(UnknownModelError):
        ChatTemplate(source)


def tuples_of_one_hash(count: int) -> list[tuple[int, int]]:
    """Return pairs of integers, for which CPython's hash of a tuple, which has no salt, is one."""
    first, second, fifth = 11400714785074694791, 14029467366897019727, 2870177450012600261
    inverse = pow(second, -1, 1 << 64)
    found: list[tuple[int, int]] = []
    for number in range(1 << 20):
        mixed = (fifth + number * second) % (1 << 64)
        mixed = (mixed << 31 | mixed >> 33) * first % (1 << 64)
        other = (0x123456789ABCDEF - mixed) * inverse % (1 << 64)
        if other < 1 << 59:
            found.append((number, other))
        if len(found) == count:
            break
    assert len(set(map(hash, found))) == 1
    return found


EQUAL = [f"({one},{other})" for one, other in tuples_of_one_hash(300)]
PAIRS = "{% set x = [" + ",".join(f"[{one},0]" for one in EQUAL) + "] %}"

# With 3000 of them, templates took 5 to more than 100 s instead of 2.
ONE_HASH = {
    "in a set": "{{ [" + ",".join(EQUAL) + "] | unique | list }}",
    "as members": (
        "{{ [" + ",".join(f"{{'k':{one}}}" for one in EQUAL) + "] | unique(attribute='k') | list }}"
    ),
    "as keys": "{% set x = {" + ",".join(f"{one}:0" for one in EQUAL) + "} %}",
    "in a dict of pairs": f"{PAIRS}{{{{ dict(x) }}}}",
    "in a namespace": f"{PAIRS}{{{{ namespace(x) }}}}",
    "in a dict of an iterator": f"{PAIRS}{{{{ dict(x | map('default', 0)) }}}}",
    "in a dict of a view": "{% set x = {" + ",".join(f"'{one}':{one}" for one in EQUAL) + "} %}"
    "{{ dict(x.values() | map('list') | map('default', [])) }}{{ x.values() | unique | list }}",
    "ranges": (
        f"{{% set ns = namespace(x=[]) %}}{{% for a in range(0, {PRIME * 300}, {PRIME}) %}}"
        "{% set ns.x = ns.x + [range(a, a + 1)] %}{% endfor %}{{ ns.x | unique | list }}"
    ),
    "long integers": f"{{{{ range(0, {PRIME * 300}, {PRIME}) | unique | list }}}}",
}


@pytest.mark.parametrize("source", ONE_HASH.values(), ids=ONE_HASH)
def test_keys_whose_hashes_can_be_chosen_are_few(source: str) -> None:
    with pytest.raises(LimitError, match="keys of tuples, ranges or long integers"):
        _run(source)


def test_other_keys_and_pairs_pass() -> None:
    members = {f"name {number}": number for number in range(2000)}
    template = ChatTemplate(
        "{{ dict(m.items()) | length }} {{ m.items() | list | length }} {{ m | dictsort | length }}"
        " {{ m.items() | map('first') | unique | list | length }} {{ {(1, 2): 3}[(1, 2)] }}"
    )
    assert template.render([], m=members) == "2000 2000 2000 2000 3"


def test_a_long_text_passes() -> None:
    text = "a" * (MAX_TEXT - 1000)
    template = ChatTemplate("{% for m in messages %}{{ m.content | trim }}{% endfor %}")
    assert template.render([{"role": "user", "content": text}]) == text


def test_many_messages_pass() -> None:
    source = (
        "{% for m in messages %}{% if m.role == 'user' and not loop.first %}"
        "{{ messages[loop.index0 - 1].content }}{% endif %}{{ m.content | trim ~ '\n' }}{% endfor %}"
    )
    messages = [
        {"role": ("user", "assistant")[i % 2], "content": "word " * 50} for i in range(2000)
    ]
    assert len(ChatTemplate(source).render(messages)) > 400_000
