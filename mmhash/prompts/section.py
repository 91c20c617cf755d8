"""The objects in a model's JSON files. Reading a member checks its type."""

from typing import Any, TypeVar

from mmhash.errors import InputValueError

T = TypeVar("T")

_MAX_NUMBER = 1 << 53


class UnknownModelError(InputValueError):
    """No family can plan the model that these files describe."""


class Section:
    """A JSON object from a model's file."""

    def __init__(self, where: str, values: dict[str, Any]) -> None:
        self.where = where
        self.values = values

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def get(self, name: str, kind: type[T], default: T | None = None) -> T:
        """Return a member of this type, or the default; without either, raise UnknownModelError."""
        value = self.values.get(name)
        if value is None:
            if default is None:
                raise UnknownModelError(f"{self.where} has no {name}")
            return default
        # Processors compute with floats, which cannot represent larger integers exactly.
        if type(value) in {int, float} and not abs(value) <= _MAX_NUMBER:
            raise UnknownModelError(f"{name} in {self.where} must be a number of at most 2**53")
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise UnknownModelError(f"{name} in {self.where} must be a {kind.__name__}")
        return value

    def section(self, name: str) -> "Section":
        """Return a member that is an object, or an empty section if there is none."""
        return Section(f"{self.where}: {name}", self.get(name, dict, {}))
