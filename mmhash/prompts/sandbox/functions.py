"""The filters, tests and functions that chat templates use, each with bounded work."""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import wraps
from typing import Any, cast

from jinja2 import TemplateError, pass_context, pass_environment
from jinja2.defaults import DEFAULT_FILTERS, DEFAULT_TESTS  # type: ignore[attr-defined]
from jinja2.exceptions import SecurityError
from jinja2.filters import make_attrgetter
from jinja2.runtime import Context
from jinja2.utils import Cycler, Joiner, Namespace

from mmhash.errors import LimitError
from mmhash.prompts.sandbox.environment import (
    CALL,
    Sandbox,
    check_size,
    offer,
    size_joined,
    size_replaced,
    words,
)

MAX_RANGE = 100_000
_MAX_WIDTH = 999  # columns of a number
_SORT = 16  # comparisons of each element, at most: a list has no more than MAX_TEXT elements


@offer
def _range(*args: int) -> range:
    values = range(*args)
    if len(values) > MAX_RANGE:
        raise LimitError(f"the chat template makes a range of more than {MAX_RANGE}")
    return values


@offer
def _raise_exception(message: Any) -> None:
    raise TemplateError(str(message)[:1000])


@offer
def _strftime_now(pattern: str) -> str:
    # The engine's clock, on which such a prompt depends, is read at another moment.
    check_size(len(pattern) << 12)
    return datetime.now().strftime(pattern)  # noqa: DTZ005  (as the engines: local time)


FUNCTIONS: dict[str, Any] = {
    "range": _range,
    "dict": dict,
    "namespace": Namespace,
    "cycler": Cycler,
    "joiner": Joiner,
    "raise_exception": _raise_exception,
    "strftime_now": _strftime_now,
}


_Reader = Callable[[Sandbox, Any], Any]
"""Spends for what a filter reads of its value, and returns the value that the filter gets."""


def _pass(_: Sandbox, value: Any) -> Any:
    return value


def _text(environment: Sandbox, value: Any) -> str:
    return environment.text(value)


def _words(environment: Sandbox, value: Any) -> str:
    text = environment.text(value)
    environment.spend(len(text) << 2)
    return text


def _top(environment: Sandbox, value: Any) -> Any:
    return environment.steps(value, CALL) if isinstance(value, Iterator) else value


def _elements(environment: Sandbox, value: Any) -> Any:
    # 5 million elements of a list took 6 s.
    if value and isinstance(value, Iterable):
        return environment.steps(value, CALL)
    return _top(environment, value)


def _all(times: int) -> _Reader:
    """Return a reader that spends for all that is in a value, so many times."""

    def read(environment: Sandbox, value: Any) -> Any:
        if isinstance(value, str):
            environment.spend(len(value) << 2)
            return value
        before = environment.work_left
        values = list(value) if isinstance(value, range) else environment.listed(value)
        environment.weigh(values)
        environment.spend((before - environment.work_left) * times)
        return iter(values) if isinstance(value, Iterator) else value

    return read


def _metered(function: Callable[..., Any], read: _Reader) -> Callable[..., Any]:
    """Return a filter that spends for what it reads, and for the text that it returns.

    An iterator stays one: what it yields is spent for when the filter reads it.
    """
    passed = getattr(function, "jinja_pass_arg", None)

    @wraps(function)
    def inner(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        environment = context.environment
        assert isinstance(environment, Sandbox)  # noqa: S101  (for the type checker)
        value = read(environment, value)
        environment.weigh_top(value)
        environment.spend(CALL)
        first = []
        if passed is not None:
            passable = {"context": context, "environment": environment}
            first = [passable.get(passed.name, context.eval_ctx)]
        result = function(*first, value, *args, **kwargs)
        if isinstance(result, str):  # escapes make five characters of one
            environment.spend_text(len(result))
        return result

    return pass_context(inner)


@pass_environment
def _unique(
    environment: Sandbox, value: Any, case_sensitive: bool = False, attribute: Any = None
) -> Any:
    values = list(value)
    environment.check_keys(map(make_attrgetter(environment, attribute), values))
    return DEFAULT_FILTERS["unique"](environment, values, case_sensitive, attribute)


@pass_environment
def _join(environment: Sandbox, value: Any, d: Any = "", attribute: Any = None) -> str:
    values: Iterable[Any] = environment.steps(value, CALL)
    if attribute is not None:
        values = map(make_attrgetter(environment, attribute), values)
    texts = []
    for one in values:
        texts.append(environment.text(one))
        environment.spend_text(len(texts[-1]))
    separator = str(environment.text(d))  # marked as safe, it would escape what it joins
    environment.spend_text(size_joined(separator, texts))
    return separator.join(texts)


@pass_environment
def _replace(environment: Sandbox, s: Any, old: Any, new: Any, count: int | None = None) -> str:
    # A text that is marked as safe would escape its replacement.
    text, old, new = (str(environment.text(one)) for one in (s, old, new))
    environment.spend(CALL)
    environment.spend_text(size_replaced(text, old, new))
    return text.replace(old, new, -1 if count is None else count)


@pass_environment
def _trim(environment: Sandbox, value: Any, chars: str | None = None) -> str:
    text = environment.text(value)
    environment.spend_text(len(text))
    if chars is not None:
        environment.spend_search(text, chars)
    return text.strip(chars)


@pass_environment
def _indent(
    environment: Sandbox,
    s: str,
    width: int | str = 4,
    first: bool = False,
    blank: bool = False,
) -> str:
    size = len(width) if isinstance(width, str) else width
    environment.spend_text(len(s) + (s.count("\n") + 2) * max(size, 0))
    indented: str = DEFAULT_FILTERS["indent"](s, width, first, blank)
    return indented


@pass_environment
def _tojson(  # noqa: PLR0917  (transformers has this order)
    environment: Sandbox,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    environment.weigh(value)
    width = len(indent) if isinstance(indent, str) else indent or 0
    if width > 16 or any(len(separator) > 16 for separator in separators or ()):
        raise SecurityError("tojson takes an indent and separators of at most 16 characters")
    text = json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
    return environment.concat([text])


@pass_environment
def _attr(environment: Sandbox, obj: Any, name: Any) -> Any:
    return DEFAULT_FILTERS["attr"](environment, obj, environment.text(name))


@pass_environment
def _string(environment: Sandbox, value: Any) -> str:
    return environment.text(value)


@pass_environment
def _sum(environment: Sandbox, iterable: Any, attribute: Any = None, start: float = 0) -> float:
    total = start
    numbers: Iterable[Any] = environment.steps(iterable, CALL)
    if attribute is not None:
        numbers = map(make_attrgetter(environment, attribute), numbers)
    for number in numbers:
        if not isinstance(number, (int, float)):
            raise SecurityError("sum takes numbers")
        total += number
    return total


def _round(value: float, precision: int = 0, method: str = "common") -> float:
    if abs(precision) > 20:
        raise SecurityError("round takes a precision of at most 20")
    if method == "common":
        return round(value, precision)
    function = {"ceil": math.ceil, "floor": math.floor}[method]
    return float(function(value * 10**precision) / 10**precision)


@pass_environment
def _format(environment: Sandbox, value: str, *args: Any, **kwargs: Any) -> str:
    environment.check_format("%", value, *args, *kwargs.values())
    return environment.text(value) % (kwargs or args)


def _int(value: Any, default: int = 0, base: int = 10) -> int:
    if isinstance(value, str) and len(value) > _MAX_WIDTH:
        return default
    return int(DEFAULT_FILTERS["int"](value, default, base))


_READERS: dict[_Reader, str] = {
    _pass: "d default",
    _text: "capitalize e escape forceescape lower safe upper",
    _words: "title wordcount",
    _top: "abs count first float items last length reverse",
    _elements: "map reject rejectattr select selectattr",
    _all(1): "list",  # it makes a value of each character
    _all(_SORT): "dictsort groupby max min sort",
}

FILTERS: dict[str, Any] = {
    **{
        name: _metered(DEFAULT_FILTERS[name], read)
        for read, names in _READERS.items()
        for name in words(names)
    },
    "attr": _metered(_attr, _top),
    "format": _format,
    "indent": _indent,
    "int": _int,
    "join": _join,
    "replace": _replace,
    "round": _round,
    "string": _string,
    "sum": _sum,
    "tojson": _tojson,
    "trim": _trim,
    "unique": _metered(_unique, _all(_SORT)),
}


@pass_environment
def _contains(environment: Sandbox, value: Any, values: Any) -> bool:
    return environment.weigh(value) in environment.weigh(values)


def _comparison(function: Callable[..., Any]) -> Callable[..., bool]:
    @pass_environment
    def compared(environment: Sandbox, left: Any, right: Any) -> bool:
        return bool(function(environment.weigh(left), environment.weigh(right)))

    return compared


TESTS: dict[str, Any] = {
    **DEFAULT_TESTS,
    **{
        name: _comparison(cast("Callable[..., Any]", DEFAULT_TESTS[name]))
        for name in words("== != > >= < <= eq equalto ne gt greaterthan ge lt lessthan le")
    },
    "in": _contains,
}
