"""The interface of a model family, which says which tokens stand for an item of a given size.

A family computes the tokens as the model's processor does, from the same settings in the model's
files. A family refuses an unknown value of a setting, because a wrong number of tokens would name
blocks that no engine has.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from mmhash.errors import LimitError
from mmhash.prompts.files import ModelFiles
from mmhash.prompts.processor.messages import Question
from mmhash.requests import media_source

MAX_TOKENS = 1 << 20
"""The most token ids of a prompt, and so of an item. This limit bounds a plan's time and memory."""

Modality = media_source.Modality


class MediaSize(NamedTuple):
    """The size of an item as the processor receives it, with EXIF orientation applied."""

    width: int = 0
    height: int = 0
    frames: int = 0
    """The number of frames sampled from a video."""
    fps: float | None = None
    """The rate of the sampled frames, if the processor receives a rate."""
    samples: int = 0
    """The number of samples of an audio clip, at the processor's sampling rate."""
    times: tuple[float, ...] = ()
    """The time of each frame of a video in seconds. By default, frames follow at the rate `fps`."""
    place: int = 0
    """The number of earlier items of this modality, for a family that numbers items."""


class Placeholder(NamedTuple):
    """The text that stands for an item in a prompt before expansion.

    `target` is the text to expand; all of its tokens must match. `text` is the target between its
    start and end tokens: an engine writes this text if the template places no items. In both, `{i}`
    is the number of the item within its modality, from 1.
    """

    target: str
    text: str


class Expansion(NamedTuple):
    """The tokens that replace a placeholder's target.

    `embeds` are the ranges [start, end) of `token_ids` that take embeddings; None means all. `grid`
    is the item's grid of patches, if the processor returns a grid.
    """

    token_ids: list[int]
    embeds: list[tuple[int, int]] | None = None
    grid: tuple[int, ...] | None = None


class PlacedItem(NamedTuple):
    """An item in the expanded prompt. Ranges are [start, end) in the prompt's token ids."""

    modality: Modality
    start: int
    end: int
    embeds: list[tuple[int, int]]


class Family(ABC):
    """The rules of a family, configured for a model and a release of an engine."""

    model_types: ClassVar[frozenset[str]]
    """The values of `model_type` in config.json."""

    numbers_items: bool = False
    """True if an item's tokens depend on its place among the items of its modality."""

    per_video_options: ClassVar[bool] = False
    """True if vLLM's processor takes lists of options with an entry for each video."""

    def __init__(self, files: ModelFiles) -> None:
        """Read the settings. Raise UnknownModelError if a setting is unknown or missing."""
        self.files = files

    @abstractmethod
    def placeholders(self) -> Mapping[Modality, Placeholder]:
        """Return the placeholder of each modality that the model supports."""

    @abstractmethod
    def expand(self, modality: Modality, size: MediaSize, options: Mapping[str, Any]) -> Expansion:
        """Return an item's tokens. `options` are the request's `mm_processor_kwargs`."""

    def question(
        self, modality: Modality, size: MediaSize, options: Mapping[str, Any]
    ) -> Question | None:
        """Return the question for the model's processor that `expand` needs answered, or None."""
        del modality, size, options
        return None

    def takes_hashes(self) -> bool:
        """Return True if the engine accepts a caller's hashes for items of native requests."""
        return True

    def merge(
        self, token_ids: list[int], items: list[PlacedItem]
    ) -> tuple[list[int], list[PlacedItem]]:
        """Return the expanded prompt as the engine joins it, because some families merge tokens."""
        return token_ids, items


def check_count(count: int) -> None:
    """Raise LimitError if an item has more tokens than a prompt may have."""
    if count > MAX_TOKENS:
        raise LimitError(f"an item has {count} tokens, and a prompt may have at most {MAX_TOKENS}")
