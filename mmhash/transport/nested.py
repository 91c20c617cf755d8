"""Handles in nested containers: finding them, and replacing them with tensors."""

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from mmhash.errors import InputValueError
from mmhash.transport.feature import Feature

MAX_DEPTH = 64


def contains_handles(container: Any) -> bool:
    """Return True if lists, tuples, dicts and dataclasses hold a feature behind a handle."""
    return _contains_handles(container, 0)


def materialize(container: Any, device: Any) -> Any:
    """Replace each feature behind a handle with a tensor; parts without one are not copied.

    `device` is the device of the tensors, or a function that returns it: it is called once, and
    only if there is a handle.
    """
    if not contains_handles(container):
        return container
    return _materialize(container, device() if callable(device) else device)


def _contains_handles(container: Any, depth: int) -> bool:
    if isinstance(container, Feature):
        return True
    if depth == MAX_DEPTH:
        raise InputValueError(f"a container of handles is nested deeper than {MAX_DEPTH}")
    return any(_contains_handles(part, depth + 1) for part in _parts(container))


def _parts(container: Any) -> Iterator[Any]:
    if isinstance(container, (list, tuple)):
        yield from container
    elif isinstance(container, dict):
        yield from container.values()
    elif _is_record(container):
        for field in dataclasses.fields(container):
            yield getattr(container, field.name, None)


def _materialize(container: Any, device: Any) -> Any:
    if isinstance(container, Feature):
        return container.reconstruct(device)
    if not contains_handles(container):
        return container
    replace: Callable[[Any], Any] = lambda part: _materialize(part, device)  # noqa: E731
    if isinstance(container, tuple):
        parts = map(replace, container)
        return container._make(parts) if hasattr(container, "_make") else type(container)(parts)
    copied = copy.copy(container)
    if isinstance(copied, list):
        copied[:] = map(replace, container)
    elif isinstance(copied, dict):
        copied.update((key, replace(value)) for key, value in container.items())
    else:
        for field in dataclasses.fields(container):
            # Also of frozen ones, and without running the constructor again.
            object.__setattr__(copied, field.name, replace(getattr(container, field.name, None)))
    return copied


def _is_record(container: Any) -> bool:
    return dataclasses.is_dataclass(container) and not isinstance(container, type)
