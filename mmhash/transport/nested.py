"""Handles in what holds them: whether there are any, and the same with tensors instead."""

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from mmhash.errors import InputValueError
from mmhash.transport.feature import Feature

MAX_DEPTH = 64


def contains_handles(held: Any) -> bool:
    """Whether anything in lists, tuples, dicts and dataclasses still lies behind a handle."""
    return _contains_handles(held, 0)


def materialize(held: Any, device: Any) -> Any:
    """The same with a tensor for each handle; what holds none is given back as it is.

    `device` is where to, or a callable that is asked once, and only if there is a handle.
    """
    if not contains_handles(held):
        return held
    return _materialize(held, device() if callable(device) else device)


def _contains_handles(held: Any, depth: int) -> bool:
    if isinstance(held, Feature):
        return True
    if depth == MAX_DEPTH:
        raise InputValueError(f"what may hold handles is nested deeper than {MAX_DEPTH}")
    return any(_contains_handles(part, depth + 1) for part in _parts(held))


def _parts(held: Any) -> Iterator[Any]:
    if isinstance(held, (list, tuple)):
        yield from held
    elif isinstance(held, dict):
        yield from held.values()
    elif _is_record(held):
        for field in dataclasses.fields(held):
            yield getattr(held, field.name, None)


def _materialize(held: Any, device: Any) -> Any:
    if isinstance(held, Feature):
        return held.reconstruct(device)
    if not contains_handles(held):
        return held
    replace: Callable[[Any], Any] = lambda part: _materialize(part, device)  # noqa: E731
    if isinstance(held, tuple):
        parts = map(replace, held)
        return held._make(parts) if hasattr(held, "_make") else type(held)(parts)
    made = copy.copy(held)
    if isinstance(made, list):
        made[:] = map(replace, held)
    elif isinstance(made, dict):
        made.update((key, replace(value)) for key, value in held.items())
    else:
        for field in dataclasses.fields(held):
            # Frozen ones too; and without what a constructor would do once more.
            object.__setattr__(made, field.name, replace(getattr(held, field.name, None)))
    return made


def _is_record(held: Any) -> bool:
    return dataclasses.is_dataclass(held) and not isinstance(held, type)
