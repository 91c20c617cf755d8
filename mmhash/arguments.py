"""Argument checks. Each raises an error that names the argument; most return the checked value.

engines/checks.py checks the lists and tokens that engines' functions take.
"""

import math
from numbers import Integral, Real
from typing import Any

from mmhash.errors import InputTypeError, InputValueError, shown


def check_int(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """Return an int within bounds. Accept numpy's integers; refuse bools."""
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, Integral)):
        raise InputTypeError(f"{name} must be an int, not {type(value).__name__}")
    number = int(value)
    if least is not None and number < least:
        raise InputValueError(f"{name} must be at least {least}, not {shown(number)}")
    if most is not None and number > most:
        raise InputValueError(f"{name} must be at most {most}, not {shown(number)}")
    return number


def check_bool(name: str, value: Any) -> bool:
    """Return `value` if it is a bool."""
    if not isinstance(value, bool):
        raise InputTypeError(f"{name} must be True or False, not {type(value).__name__}")
    return value


def check_bytes(name: str, value: Any) -> bytes:
    """Return `value` if it is bytes."""
    if not isinstance(value, bytes):
        raise InputTypeError(f"{name} must be bytes, not {type(value).__name__}")
    return value


def check_str(name: str, value: Any) -> str:
    """Return `value` if it is a str."""
    if not isinstance(value, str):
        raise InputTypeError(f"{name} must be a str, not {type(value).__name__}")
    return value


def check_text(name: str, value: Any) -> str:
    """Return `value` if it is a str that UTF-8 can encode."""
    try:
        check_str(name, value).encode()
    except UnicodeEncodeError:
        raise InputValueError(f"{name} has a lone surrogate: UTF-8 cannot encode it") from None
    return str(value)


def check_optional_text(name: str, value: Any) -> str | None:
    """Return `value` if it is None or a str that UTF-8 can encode."""
    if value is not None and not isinstance(value, str):
        raise InputTypeError(f"{name} must be a str or None, not {type(value).__name__}")
    return None if value is None else check_text(name, value)


def check_seconds(name: str, value: Any, most: float = math.inf) -> float:
    """Return `value` if it is a number of seconds above 0 and up to `most`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputTypeError(f"{name} must be a number of seconds, not {type(value).__name__}")
    if not 0 < value <= most:  # also refuses NaN
        bounds = "more than 0" if most == math.inf else f"more than 0 and at most {most}"
        number = value if isinstance(value, float) else shown(value)
        raise InputValueError(f"{name} must be {bounds} seconds, not {number}")
    return value


def check_number(name: str, value: Any) -> None:
    """Refuse anything but a finite number. Numpy's numbers are accepted."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InputTypeError(f"{name} must be a number, not {type(value).__name__}")
    try:
        is_finite = math.isfinite(value)
    except OverflowError:  # an int too large for a float
        is_finite = False
    if not is_finite:
        raise InputValueError(f"{name} must be a finite number")


def check_choice(name: str, value: Any, *choices: str) -> None:
    """Refuse a value that is not among the choices: a misspelt choice would change keys."""
    if value not in choices:
        *others, last = choices
        raise InputValueError(f"{name} must be {', '.join(others)} or {last}, not {value!r}")


def header_value(name: str, value: Any) -> bytes:
    """Return a header's value as bytes.

    Refuse text that HTTP would trim or that ends the header.
    """
    text = check_text(name, value)
    if not text:
        raise InputValueError(f"{name} must not be empty")
    if text != text.strip() or any(ord(char) < 0x20 or char == "\x7f" for char in text):
        raise InputValueError(
            f"{name} must not have control characters, nor a space at its start or end"
        )
    return text.encode()
