"""The parsed files of a model's directory, whose members are checked when they are read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from mmhash.errors import InputValueError

if TYPE_CHECKING:
    from mmhash.prompts.processor.client import ModelProcessor

T = TypeVar("T")

_MAX_NUMBER = 1 << 53


class UnknownModelError(InputValueError):
    """A model's files ask for something that no family here is known to do."""


class Section:
    """A JSON object of a model's file, whose members are read with their types checked."""

    def __init__(self, where: str, values: dict[str, Any]) -> None:
        self.where = where
        self.values = values

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def get(self, name: str, kind: type[T], default: T | None = None) -> T:
        """Return a member of a type; a missing one without a default is an UnknownModelError."""
        value = self.values.get(name)
        if value is None:
            if default is None:
                raise UnknownModelError(f"{self.where} has no {name}")
            return default
        # Processors compute with floats, in which larger numbers and NaN are not what they say.
        if type(value) in {int, float} and not abs(value) <= _MAX_NUMBER:
            raise UnknownModelError(f"{name} in {self.where} is a number of at most 2**53")
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise UnknownModelError(f"{name} in {self.where} is a {kind.__name__}")
        return value

    def section(self, name: str) -> "Section":
        """Return a member that is an object; a missing one is empty."""
        return Section(f"{self.where}: {name}", self.get(name, dict, {}))


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The parsed files; a file that the directory does not have is an empty section."""

    config: Section
    """config.json"""
    image_processor: Section
    """preprocessor_config.json, or `image_processor` of processor_config.json"""
    video_processor: Section
    """video_preprocessor_config.json, or `video_processor` of processor_config.json"""
    audio_processor: Section
    """preprocessor_config.json of an audio model, or `feature_extractor` of the other file"""
    processor: Section
    """The members of processor_config.json itself"""
    tokenizer: Section
    """tokenizer_config.json"""
    token_id: Callable[[str], int]
    """Return the id of a token's text; one that the tokenizer lacks is an UnknownModelError."""
    encode: Callable[[str], list[int]]
    """Return the ids of a text without special tokens around it."""
    engine: str = ""
    """The name of the engine that a plan is for, because engines resize and count differently."""
    release: str = ""
    """Its release."""
    model_processor: "ModelProcessor | None" = None
    """The model's own processor, in a helper process."""
    unchecked: bool = False
    """The operator plans a model whose engine is not known to count as its processor does."""
