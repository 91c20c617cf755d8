"""A jinja2 environment whose templates have bounded work and memory, in one thread.

jinja2's sandbox keeps a template from the system, but not from loops and from texts of gigabytes.
Here each step of a template spends from a budget: loops and macros by the nodes in their bodies,
operations on texts and lists by their sizes. What could make a large value is checked before it is
made. Filters, methods and statements that chat templates do not use are refused.
"""

import copy
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, MappingView, Sized
from datetime import datetime
from functools import wraps
from types import BuiltinMethodType, MethodType
from typing import Any, cast

from jinja2 import TemplateError, nodes, pass_context, pass_environment
from jinja2.compiler import CodeGenerator, Frame, operators
from jinja2.defaults import DEFAULT_FILTERS, DEFAULT_TESTS  # type: ignore[attr-defined]
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler, Joiner, Namespace

from mmhash.errors import LimitError

MAX_TEXT = 4 << 20
"""The characters of the longest text that a template makes: a million tokens of English."""

WORK = 20_000_000
"""The units of work of one rendering: about 2 s. A chat of 100 messages takes 50 000."""

MAX_NODES = 30_000
"""The nodes of the largest template, compiled in 1 s: a template of 20 KB has 3000."""

MAX_RANGE = 100_000
_MAX_BITS = 256  # of an integer
_HASH_BITS = 60  # longer integers may have equal hashes, and n of them in a dict take n² steps
_CALL = 64  # units of a call or filter, beside its body: 3 µs
_MAX_WIDTH = 999  # columns of an indent or a number


def _words(text: str) -> list[str]:
    return text.split()


_STATEMENTS = (
    nodes.Assign,
    nodes.AssignBlock,
    nodes.Break,
    nodes.CallBlock,
    nodes.Continue,
    nodes.ExprStmt,
    nodes.FilterBlock,
    nodes.For,
    nodes.If,
    nodes.Macro,
    nodes.Output,
    nodes.Scope,
    nodes.With,
)

_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        _words(
            "capitalize count endswith find index isalnum isalpha isascii isdecimal isdigit islower"
            " isnumeric isspace istitle isupper join lower lstrip partition removeprefix"
            " removesuffix replace rfind rindex rpartition rsplit rstrip split splitlines"
            " startswith strip swapcase title upper"
        )
    ),
    dict: frozenset({"copy", "get", "items", "keys", "values"}),
    list: frozenset({"copy", "count", "index"}),
    tuple: frozenset({"count", "index"}),
}

# Methods that compare each character of a text with each one of their argument.
_QUADRATIC = frozenset(_words("lstrip rfind rindex rpartition rsplit rstrip strip"))

# Filters that look at each element once, and those that look into all of them.
_SHALLOW = _words(
    "abs attr capitalize count d default e escape first float forceescape items last length"
    " lower map reject rejectattr reverse safe select selectattr upper"
)
_OF_PIECES = ("list", "title", "wordcount")  # these make a value of each character or word
_DEEP = ("dictsort", "groupby", "max", "min", "sort", "unique")
_SORT = 16  # comparisons of each element, at most: a list has no more than MAX_TEXT elements


class _CodeGenerator(CodeGenerator):
    """Python code in which joined, sliced, compared and hashable values are weighed.

    A tuple is weighed when it is made, because its hash visits all that is in it, each time.
    """

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        self.write("environment.concat(map(environment.text, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write(")))")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:  # noqa: N802
        self.write("(environment.operand(")
        self.visit(node.expr, frame)
        self.write(")")
        for operand in node.ops:
            self.visit(operand, frame)
        self.write(")")

    def visit_Operand(self, node: nodes.Operand, frame: Frame) -> None:  # noqa: N802
        self.write(f" {operators[node.op]} environment.operand(")
        self.visit(node.expr, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802
        is_target = node.ctx != "load"
        self.write("" if is_target else "environment.weigh(")
        super().visit_Tuple(node, frame)
        self.write("" if is_target else ")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802
        self.write("environment.weigh_keys(")
        super().visit_Dict(node, frame)
        self.write(")")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802
        if not isinstance(node.arg, nodes.Slice):
            super().visit_Getitem(node, frame)
            return
        self.write("environment.weigh_top(")
        self.visit(node.node, frame)
        self.write(")[")
        self.visit(node.arg, frame)
        self.write("]")


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment; each rendering has a copy with its own budget."""

    code_generator_class = _CodeGenerator
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, LoopControlExtension]
        )
        self.work_left = WORK
        self.finalize = _finalize
        self.filters = _FILTERS
        self.tests = _TESTS
        self.globals = dict(_GLOBALS)

    def fresh(self) -> "Sandbox":
        """Return a copy with a whole budget, for one rendering."""
        made = copy.copy(self)
        made.work_left = WORK
        return made

    def spend(self, units: int) -> None:
        """Take units of work from the budget; an empty one is a LimitError."""
        self.work_left -= units
        if self.work_left < 0:
            raise LimitError("the chat template takes too many steps")

    def steps(self, values: Iterable[Any], units: int) -> Iterator[Any]:
        """Yield the values of a loop, each for the units of the loop's body."""
        for value in values:
            self.spend(units)
            yield value

    def spend_text(self, size: int) -> None:
        """Check the size of a text that is to be made, and spend for it.

        A unit for 8 characters keeps all texts of one rendering below 160 MB, or 640 MB if they
        have characters beyond U+FFFF.
        """
        check_size(size)
        self.spend(size >> 3)

    def weigh_top(self, value: Any) -> Any:
        """Spend for a copy of a list or a text, and return it."""
        if isinstance(value, str):
            self.spend_text(len(value))
        elif isinstance(value, Sized):
            self.spend(len(value) << 2)
        return value

    def weigh(self, value: Any) -> Any:
        """Spend for a value and all that is in it, and return it."""
        kind = type(value)
        if kind is str:
            if len(value) > 63:
                self.spend(len(value) >> 6)
        elif isinstance(value, (list, tuple, dict, str)):
            self._weigh_deep(value)
        return value

    def weigh_keys(self, value: Any) -> Any:
        """Spend for a value whose parts become keys, and return it."""
        integers = self._weigh_deep(value)
        self.spend(integers * integers >> 4)
        return value

    def operand(self, value: Any) -> Any:
        """Return one side of a comparison, weighed; an iterator becomes a list."""
        return self.weigh(self.listed(value))

    def listed(self, value: Any) -> Any:
        """Return an iterator, a range or the view of a dict as a list; other values as given."""
        values: Any = value
        if isinstance(value, (Iterator, range, MappingView)):
            return list(self.steps(values, _CALL))
        return value

    def _weigh_deep(self, value: Any) -> int:
        """Spend for a value and all that is in it, and return the number of long integers."""
        # Lists that hold the same list many times are counted as often as they are written.
        integers, size, stack = 0, 0, [value]
        while stack:
            one = stack.pop()
            if isinstance(one, str):
                size += len(one)
            elif isinstance(one, (list, tuple)):
                self.spend(len(one) << 2)
                stack.extend(one)
            elif isinstance(one, dict):
                self.spend(len(one) << 3)
                stack.extend(one)
                stack.extend(one.values())
            elif isinstance(one, int) and one.bit_length() > _HASH_BITS:
                integers += 1
            size += 8
            check_size(size)
        self.spend(size >> 6)
        return integers

    def text(self, value: Any) -> str:
        """Return the text that a value is written as."""
        if isinstance(value, str):
            return value
        return str(self.weigh(value))

    def concat(self, parts: Iterable[str]) -> str:
        """Return the joined parts; their size is checked first."""
        pieces = list(parts)
        self.spend_text(sum(map(len, pieces)))
        self.spend(len(pieces))
        return "".join(pieces)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Return the result of an operator that could make a large value."""
        if operator == "+":
            self._check_sum(left, right)
        elif operator == "*":
            self._check_product(left, right)
        elif operator == "**":
            _check_power(left, right)
        elif isinstance(left, str):
            self.check_format("%", left, right)
        return super().call_binop(context, operator, left, right)

    def spend_search(self, text: str, part: str) -> None:
        """Spend for a search from the right, or for characters of a set: it has no short cut."""
        self.spend(len(text) * len(part) >> 6)

    def _check_sum(self, left: Any, right: Any) -> None:
        if isinstance(left, (str, list, tuple)) and isinstance(right, (str, list, tuple)):
            self.spend_text(len(left) + len(right))
            if not isinstance(left, str):
                self.spend(len(left) + len(right))

    def _check_product(self, left: Any, right: Any) -> None:
        for value, times in ((left, right), (right, left)):
            if isinstance(value, (str, list, tuple)) and isinstance(times, int):
                size = len(value) * max(times, 0)
                self.spend_text(size)
                if not isinstance(value, str):
                    self.spend(size)
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() + right.bit_length())

    def check_format(self, mark: str, pattern: str, *values: Any) -> None:
        """Refuse a pattern that could make a large text: a wide column, or long values often."""
        if "*" in pattern or re.search(r"\d{4}|\{[^}]*\{", pattern):
            raise SecurityError("the format has too large a width")
        self.spend(len(values))
        longest = max((len(self.text(value)) for value in values), default=0)
        self.spend_text(len(pattern) + pattern.count(mark) * (longest + 1000))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return a `str.format` that checks its pattern and values; None for other values."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def formatted(*args: Any, **kwargs: Any) -> str:
            self.check_format("{", value.__self__, *args, *kwargs.values())
            return str(wrapped(*args, **kwargs))

        return _offer(formatted)

    def call(
        __self,  # noqa: N805
        __context: Context,  # noqa: PYI063
        __obj: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Call what a template may call, and spend for it."""
        __self.spend(_CALL + len(args) + len(kwargs))
        if type(__obj) is BuiltinMethodType:
            __self._check_method(__obj, args)
        elif not (isinstance(__obj, (Macro, Joiner, Undefined)) or _is_offered(__obj)):
            raise SecurityError("the template calls a function that templates are not offered")
        else:
            __self._weigh_arguments(__obj, args)
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, str):  # upper() makes three characters of some
            __self.spend_text(len(result))
        return result

    def _weigh_arguments(self, function: Any, args: tuple[Any, ...]) -> None:
        if type(function) is type:
            self.weigh_keys(args)
        elif isinstance(getattr(function, "__self__", None), LoopContext):
            self.weigh(args)  # loop.changed compares them
        else:  # a macro has its further arguments as a tuple
            self.weigh([one for one in args if type(one) is tuple])

    def _check_method(self, method: BuiltinMethodType, args: tuple[Any, ...]) -> None:
        """Check that the method is one of a text, dict or list that is not expensive."""
        owner = method.__self__
        kind = next((kind for kind in _METHODS if isinstance(owner, kind)), None)
        if kind is None or method.__name__ not in _METHODS[kind]:
            raise SecurityError(f"the template calls {method.__name__}, which is not offered")
        if method.__name__ == "copy":
            self.weigh_top(owner)
        if isinstance(owner, str):
            self.spend_text(len(owner))
            if args and isinstance(args[0], str) and method.__name__ in _QUADRATIC:
                self.spend_search(owner, args[0])
            if method.__name__ == "replace" and len(args) >= 2:
                self.spend_text(_size_replaced(owner, *args[:2]))
            elif method.__name__ == "join" and args:
                if isinstance(args[0], Sized):
                    self.spend(len(args[0]))
                self.spend_text(_size_joined(owner, args[0]))
            elif method.__name__ in {"split", "rsplit", "splitlines"}:
                self.spend(2 * len(owner))  # a list of 58 bytes for each character, at most
        elif method.__name__ in {"count", "index"}:
            self.weigh(owner)


class _Generation(Extension):
    """The tag `generation`, which marks what the assistant wrote: it changes no text."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse the tag up to its end as a call of a macro: assignments in it stay in it."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_text_of")
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _text_of(self, caller: Callable[[], str]) -> str:
        return caller()


def bound_work(tree: nodes.Template) -> None:
    """Let each loop and macro of a template spend for its body; refuse unknown statements."""
    if sum(1 for _ in _walk(tree)) > MAX_NODES:
        raise TemplateError(f"it has more than {MAX_NODES} nodes")
    for node in _walk(tree):
        if isinstance(node, nodes.Stmt) and not isinstance(node, _STATEMENTS):
            raise TemplateError(f"the statement {type(node).__name__} is not offered")
        if isinstance(node, nodes.For) and node.recursive:
            raise TemplateError("recursive loops are not offered")
    for node in list(_walk(tree)):
        if isinstance(node, nodes.For):
            node.iter = _call("steps", node.iter, nodes.Const(_weight(node)))
        elif isinstance(node, (nodes.Macro, nodes.CallBlock)):
            spend = nodes.ExprStmt(lineno=node.lineno)
            spend.node = _call("spend", nodes.Const(_weight(node)))
            node.body.insert(0, spend)


def _call(name: str, *args: Any) -> nodes.Call:
    return nodes.Call(nodes.EnvironmentAttribute(name), list(args), [], None, None)


def _weight(node: nodes.For | nodes.Macro | nodes.CallBlock) -> int:
    # A nested loop's body counts here too: a loop may be empty, and its set-up is work as well.
    return sum(1 for _ in _walk(node))


def _walk(root: nodes.Node) -> Iterator[nodes.Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(node.iter_child_nodes())


def check_size(size: int) -> None:
    """Refuse a text or list that is too long."""
    if size > MAX_TEXT:
        raise LimitError(f"the chat template makes more than {MAX_TEXT} characters")


def _size_replaced(text: str, old: Any, new: Any) -> int:
    if not isinstance(old, str) or not isinstance(new, str):
        raise SecurityError("replace takes texts")
    return len(text) + text.count(old) * len(new)


def _size_joined(separator: str, values: Any) -> int:
    # A generator's values are not known yet.
    if not isinstance(values, (list, tuple, str, dict)):
        raise SecurityError("join takes a list")
    sizes = (len(value) for value in values if isinstance(value, str))
    return sum(sizes) + len(values) * len(separator)


def _check_power(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(max(left.bit_length(), 1) * abs(right))


def _check_bits(bits: int) -> None:
    if bits > _MAX_BITS:
        raise LimitError(f"the chat template makes an integer of more than {_MAX_BITS} bits")


@pass_environment
def _finalize(environment: Sandbox, value: Any) -> str:
    return environment.text(value)


def _offer(function: Callable[..., Any]) -> Callable[..., Any]:
    function.is_offered = True  # type: ignore[attr-defined]
    return function


def _is_offered(value: Any) -> bool:
    if type(value) is type:
        return value in {dict, Namespace, Cycler, Joiner}
    if type(value) is MethodType:
        owner = value.__self__
        return isinstance(owner, (LoopContext, Cycler, _Generation, Sandbox))
    return getattr(value, "is_offered", False) is True


@_offer
def _range(*args: int) -> range:
    values = range(*args)
    if len(values) > MAX_RANGE:
        raise LimitError(f"the chat template makes a range of more than {MAX_RANGE}")
    return values


@_offer
def _raise_exception(message: Any) -> None:
    raise TemplateError(str(message)[:1000])


@_offer
def _strftime_now(pattern: str) -> str:
    # The engine's clock, on which such a prompt depends, is read at another moment.
    check_size(len(pattern) << 12)
    return datetime.now().strftime(pattern)  # noqa: DTZ005  (as the engines: local time)


_GLOBALS: dict[str, Any] = {
    "range": _range,
    "dict": dict,
    "namespace": Namespace,
    "cycler": Cycler,
    "joiner": Joiner,
    "raise_exception": _raise_exception,
    "strftime_now": _strftime_now,
}


def _metered(function: Callable[..., Any], units: int) -> Callable[..., Any]:
    """Return a filter that spends for its value: for all that is in it if `units`."""
    passed = getattr(function, "jinja_pass_arg", None)

    @wraps(function)
    def inner(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        environment = context.environment
        assert isinstance(environment, Sandbox)  # noqa: S101  (for the type checker)
        value = environment.listed(value)
        if units and isinstance(value, str):
            environment.spend(len(value) << 2)
        elif units:
            before = environment.work_left
            environment.weigh_keys(value)
            environment.spend((before - environment.work_left) * units)
        environment.weigh_top(value)
        environment.spend(_CALL)
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
def _join(environment: Sandbox, value: Any, d: str = "", attribute: Any = None) -> str:
    values = list(environment.steps(value, _CALL))
    if attribute is not None:
        values = [environment.getitem(one, attribute) for one in values]
    texts = []
    for one in values:
        texts.append(environment.text(one))
        environment.spend_text(len(texts[-1]))
    environment.spend_text(_size_joined(d, texts))
    return d.join(texts)


@pass_environment
def _replace(environment: Sandbox, s: Any, old: str, new: str, count: int = -1) -> str:
    text = environment.text(s)
    environment.spend(_CALL)
    environment.spend_text(_size_replaced(text, old, new))
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
    return str(DEFAULT_FILTERS["indent"](s, width, first, blank))


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
def _string(environment: Sandbox, value: Any) -> str:
    return environment.text(value)


@pass_environment
def _sum(environment: Sandbox, iterable: Any, attribute: Any = None, start: float = 0) -> float:
    total = start
    for value in environment.steps(iterable, _CALL):
        number = value if attribute is None else environment.getitem(value, attribute)
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
    return str(value) % (kwargs or args)


def _int(value: Any, default: int = 0, base: int = 10) -> int:
    if isinstance(value, str) and len(value) > _MAX_WIDTH:
        return default
    return int(DEFAULT_FILTERS["int"](value, default, base))


_FILTERS: dict[str, Any] = {
    **{name: _metered(DEFAULT_FILTERS[name], 0) for name in _SHALLOW},
    **{name: _metered(DEFAULT_FILTERS[name], 1) for name in _OF_PIECES},
    **{name: _metered(DEFAULT_FILTERS[name], _SORT) for name in _DEEP},
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
}


@pass_environment
def _contains(environment: Sandbox, value: Any, values: Any) -> bool:
    return environment.weigh(value) in environment.weigh(values)


def _comparison(function: Callable[..., Any]) -> Callable[..., bool]:
    @pass_environment
    def compared(environment: Sandbox, left: Any, right: Any) -> bool:
        return bool(function(environment.weigh(left), environment.weigh(right)))

    return compared


_TESTS: dict[str, Any] = {
    **DEFAULT_TESTS,
    **{
        name: _comparison(cast("Callable[..., Any]", DEFAULT_TESTS[name]))
        for name in _words("== != > >= < <= eq equalto ne gt greaterthan ge lt lessthan le")
    },
    "in": _contains,
}
