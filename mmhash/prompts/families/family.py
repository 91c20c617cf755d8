"""The definition of a model family: which tokens stand for an item, by its size.

A family's module computes these numbers as the model's processor does, from the settings in the
model's files. It reads each setting that the processor reads, and refuses values that it does not
know: a wrong number of tokens would name blocks that no engine has.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from mmhash.errors import LimitError
from mmhash.prompts.files import ModelFiles, Section, UnknownModelError
from mmhash.prompts.processor.messages import Question
from mmhash.requests import media_source

MAX_TOKENS = 1 << 20
"""The ids of the longest prompt, and so of an item: a plan of them takes 3 s and 420 MB."""

Modality = media_source.Modality


class MediaSize(NamedTuple):
    """The size of an item, as the processor receives it: an image after EXIF orientation."""

    width: int = 0
    height: int = 0
    frames: int = 0
    """The sampled frames of a video."""
    fps: float | None = None
    """The rate of the sampled frames, if the processor is given one."""
    samples: int = 0
    """The samples of an audio clip at the processor's sampling rate."""
    in_prompt: int = 1
    """The number of items of this modality in the prompt."""
    times: tuple[float, ...] = ()
    """The seconds at which a video's frames are; without them, frames are `fps` apart."""
    place: int = 0
    """The number of items of this modality before it, for a family that numbers items."""


class Placeholder(NamedTuple):
    """The text that stands for one item in a prompt before it is expanded.

    `target` is the token that is expanded; a text of several tokens is found by all of them. `text`
    is what an engine writes into a prompt whose template does not place the item: the target with
    the tokens around it. In both, `{i}` is the item's number among those of its modality, from 1.
    """

    target: str
    text: str


class Expansion(NamedTuple):
    """The tokens that replace one placeholder's target.

    `embeds` are the ranges [start, end) of `token_ids` that take embeddings; None means all of
    them. `grid` is the item's grid of patches, if the processor returns one.
    """

    token_ids: list[int]
    embeds: list[tuple[int, int]] | None = None
    grid: tuple[int, ...] | None = None


class PlacedItem(NamedTuple):
    """An item in the expanded prompt; ranges are [start, end) of the prompt's token ids."""

    modality: Modality
    start: int
    end: int
    embeds: list[tuple[int, int]]


class Family(ABC):
    """The rules of a family, with the settings of one model, for one release of an engine."""

    model_types: ClassVar[frozenset[str]]
    """The values of `model_type` in config.json."""

    engines: ClassVar[frozenset[str]] = frozenset({"vllm", "sglang"})
    """The engines that count tokens by these rules."""

    numbers_items: bool = False
    """The tokens of an item depend on its place among those of its modality."""

    per_video_options: ClassVar[bool] = False
    """vLLM's processor takes lists of options with an entry for each video (vllm.identifiers)."""

    def __init__(self, files: ModelFiles) -> None:
        """Read the settings; an unknown or missing one is an UnknownModelError."""
        if files.engine and files.engine not in self.engines:
            kind = str(files.config.values.get("model_type"))[:60]
            raise UnknownModelError(f"prompts of {kind} are not planned for {files.engine}")
        self.files = files

    @classmethod
    def takes(cls, config: Section) -> bool:
        """Return True if a model with this config.json is of the family."""
        return config.values.get("model_type") in cls.model_types

    @abstractmethod
    def placeholders(self) -> Mapping[Modality, Placeholder]:
        """Return the placeholder of each modality that the model takes."""

    @abstractmethod
    def expand(self, modality: Modality, size: MediaSize, options: Mapping[str, Any]) -> Expansion:
        """Return the tokens for an item; `options` are the request's `mm_processor_kwargs`."""

    def question(
        self, modality: Modality, size: MediaSize, options: Mapping[str, Any]
    ) -> Question | None:
        """Return what the model's processor has to be asked before `expand`, or None."""
        del modality, size, options
        return None

    def splits_items(self) -> bool:
        """Return True if the engine makes several items of one, each with its own hash."""
        return False

    def takes_hashes(self) -> bool:
        """Return True if the engine identifies items of native requests by a caller's hashes."""
        return not self.splits_items()

    def merge(
        self, token_ids: list[int], items: list[PlacedItem]
    ) -> tuple[list[int], list[PlacedItem]]:
        """Return the expanded prompt as the engine joins it: families differ that merge tokens."""
        return token_ids, items


def check_count(count: int) -> None:
    """Raise a LimitError if an item has more tokens than a prompt may have."""
    if count > MAX_TOKENS:
        raise LimitError(f"an item has {count} tokens: a prompt has at most {MAX_TOKENS}")
