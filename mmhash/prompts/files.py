"""The parsed files of a model's directory. Reading a member checks its type."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from mmhash.errors import InputValueError

if TYPE_CHECKING:
    from mmhash.prompts.processor.client import ModelProcessor

T = TypeVar("T")

_MAX_NUMBER = 1 << 53


class UnknownModelError(InputValueError):
    """No family can plan the model that these files describe."""


class Section:
    """A JSON object from a model's file. Reading a member checks its type."""

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


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The parsed files of a model. A missing file is an empty section."""

    config: Section
    """config.json"""
    image_processor: Section
    """preprocessor_config.json, or `image_processor` of processor_config.json"""
    video_processor: Section
    """video_preprocessor_config.json, or `video_processor` of processor_config.json"""
    audio_processor: Section
    """an audio model's preprocessor_config.json, or `feature_extractor` of processor_config.json"""
    token_id: Callable[[str], int]
    """Return the id of a token's text. Raise UnknownModelError if the tokenizer lacks the token."""
    encode: Callable[[str], list[int]]
    """Return the ids of a text without special tokens around it."""
    engine: str = ""
    """The name of the engine to plan for: engines resize images and count tokens differently."""
    release: str = ""
    """The engine's release."""
    model_processor: "ModelProcessor | None" = None
    """The model's own processor, in a helper process."""
    unchecked: bool = False
    """The operator allows plans although nobody has compared the processor with the engine."""
