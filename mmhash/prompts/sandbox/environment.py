"""The environment of a template: it weighs values, and takes work from a budget."""

import copy
import re
from collections.abc import Callable, Iterable, Iterator, MappingView, Sized
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any, cast

from jinja2 import pass_environment
from jinja2.exceptions import SecurityError
from jinja2.ext import LoopControlExtension
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler, Joiner, Namespace

from mmhash.errors import LimitError
from mmhash.prompts.sandbox.compiler import Generation, WeighingGenerator

MAX_TEXT = 4 << 20
"""The characters of the longest text that a template makes: a million tokens of English."""

WORK = 20_000_000
"""The units of work of one rendering: about 2 s. A chat of 100 messages takes 50 000."""

_MAX_BITS = 256  # of an integer
# Hashes of longer integers, of tuples and of ranges can be made equal, and n equal ones in a dict
# take n² steps: 3000 tuples 0.2 s, without a pause for other threads. Texts have salted hashes.
_HASH_BITS = 60
_MAX_UNSALTED = 100
CALL = 64  # units of a call or filter, beside its body: 3 µs


def words(text: str) -> list[str]:
    """Return the names in a text."""
    return text.split()


_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        words(
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
_QUADRATIC = frozenset(words("lstrip rfind rindex rpartition rsplit rstrip strip"))


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment; each rendering has a copy with its own budget."""

    code_generator_class = WeighingGenerator
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(
        self, filters: dict[str, Any], tests: dict[str, Any], functions: dict[str, Any]
    ) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, LoopControlExtension]
        )
        self.work_left = WORK
        self.finalize = _finalize
        self.filters = filters
        self.tests = tests
        self.globals = functions

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
        elif isinstance(value, (list, tuple, dict, str, MappingView, Namespace)):
            self._weigh_deep(value)
        return value

    def weigh_keys(self, value: Any) -> Any:
        """Spend for a new dict, check its keys, and return it."""
        self.weigh(value)
        self.check_keys(value)
        return value

    def check_keys(self, keys: Iterable[Any]) -> None:
        """Refuse many keys whose hashes can be chosen."""
        if sum(map(_has_unsalted_hash, keys)) > _MAX_UNSALTED:
            raise LimitError(
                f"the chat template makes more than {_MAX_UNSALTED} keys of tuples, ranges or long"
                " integers"
            )

    def members(self, value: Any) -> Any:
        """Return the right side of `in`, weighed; an iterator becomes a list."""
        if isinstance(value, range):
            self.spend(len(value))
        return self.weigh(self.listed(value))

    def listed(self, value: Any) -> Any:
        """Return an iterator as a list, and other values as given."""
        return list(self.steps(value, CALL)) if isinstance(value, Iterator) else value

    def _weigh_deep(self, value: Any) -> None:
        """Spend for a value and all that is in it."""
        # Lists that hold the same list many times are counted as often as they are written.
        size, stack = 0, [value]
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
            elif isinstance(one, MappingView):
                self.spend(len(one) << 3)
                stack.extend(cast("Iterable[Any]", one))
            elif isinstance(one, Namespace):
                stack.append(one._Namespace__attrs)
            size += 8
            check_size(size)
        self.spend(size >> 6)

    def text(self, value: Any) -> str:
        """Return the text that a value is written as."""
        if isinstance(value, str):
            return value
        made = str(self.weigh(value))
        self.spend_text(len(made))
        return made

    def concat(self, parts: Iterable[str]) -> str:
        """Return the joined parts; their size is checked first."""
        pieces = list(parts)
        self.spend_text(sum(map(len, pieces)))
        self.spend(len(pieces))
        return "".join(pieces)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return a member; a wrong index is written in the error."""
        return super().getitem(obj, self.weigh(argument))

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

        return offer(formatted)

    def call(
        __self,  # noqa: N805
        __context: Context,  # noqa: PYI063
        __obj: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Call what a template may call, and spend for it."""
        __self.spend(CALL + len(args) + len(kwargs))
        if type(__obj) is BuiltinMethodType:
            __self._check_method(__obj, args)
        elif not (isinstance(__obj, (Macro, Joiner, Undefined)) or _is_offered(__obj)):
            raise SecurityError("the template calls a function that templates are not offered")
        else:
            args = __self._weigh_arguments(__obj, args, kwargs)
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, str):  # upper() makes three characters of some
            __self.spend_text(len(result))
        return result

    def _weigh_arguments(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, ...]:
        """Spend for arguments that are compared or become keys, and return all arguments."""
        if function in (dict, Namespace):
            args = tuple(self.weigh(self.listed(one)) for one in args)
            for one in args:
                self.check_keys(_keys_of(one))
        elif type(function) in {type, FunctionType}:
            self.weigh([*args, *kwargs.values()])
        elif isinstance(getattr(function, "__self__", None), LoopContext):
            self.weigh(args)  # loop.changed compares them
        else:  # a macro has its further arguments as a tuple
            self.weigh([one for one in args if type(one) is tuple])
        return args

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
                self.spend_text(size_replaced(owner, *args[:2]))
            elif method.__name__ == "join" and args:
                if isinstance(args[0], Sized):
                    self.spend(len(args[0]))
                self.spend_text(size_joined(owner, args[0]))
            elif method.__name__ in {"split", "rsplit", "splitlines"}:
                self.spend(2 * len(owner))  # a list of 58 bytes for each character, at most
        elif method.__name__ in {"count", "index"}:
            self.weigh(owner)


def _has_unsalted_hash(key: Any) -> bool:
    return isinstance(key, (tuple, range)) or (
        isinstance(key, int) and key.bit_length() > _HASH_BITS
    )


def _keys_of(value: Any) -> Iterable[Any]:
    """Return the keys of the dict that is made of a value: of a dict, or of pairs."""
    if isinstance(value, (list, tuple)):
        return (pair[0] for pair in value if isinstance(pair, (list, tuple)) and pair)
    return value if isinstance(value, dict) else ()


def check_size(size: int) -> None:
    """Refuse a text or list that is too long."""
    if size > MAX_TEXT:
        raise LimitError(f"the chat template makes more than {MAX_TEXT} characters")


def size_replaced(text: str, old: Any, new: Any) -> int:
    """Return the size of a text after a replacement, at most."""
    if not isinstance(old, str) or not isinstance(new, str):
        raise SecurityError("replace takes texts")
    return len(text) + text.count(old) * len(new)


def size_joined(separator: str, values: Any) -> int:
    """Return the size of a joined text."""
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


def offer(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let templates call a function."""
    function.is_offered = True  # type: ignore[attr-defined]
    return function


def _is_offered(value: Any) -> bool:
    if type(value) is type:
        return value in {dict, Namespace, Cycler, Joiner}
    if type(value) is MethodType:
        owner = value.__self__
        return isinstance(owner, (LoopContext, Cycler, Generation, Sandbox))
    return getattr(value, "is_offered", False) is True
