"""The interface of a model family, which says which tokens stand for an item of a given size.

A family computes the tokens as the model's processor does, from the same settings in the model's
files. A family refuses an unknown value of a setting, because a wrong number of tokens would name
blocks that no engine has.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from mmhash.prompts.files import ModelFiles
from mmhash.prompts.items import Expansion, MediaSize, PlacedItem
from mmhash.requests import Modality


class Placeholder(NamedTuple):
    """The text that stands for an item in a prompt before expansion.

    `target` is the text to expand; all of its tokens must match. `text` is the target between its
    start and end tokens: an engine writes this text if the template places no items. In both, `{i}`
    is the number of the item within its modality, from 1.
    """

    target: str
    text: str


class Family(ABC):
    """The rules of a family, configured for a model and a release of an engine."""

    placeholders: Mapping[Modality, Placeholder]
    """The placeholder of each modality that the model supports."""

    numbers_items: bool = False
    """True if an item's tokens depend on its place among the items of its modality."""

    per_video_options: ClassVar[bool] = False
    """True if vLLM's processor takes lists of options with an entry for each video."""

    def __init__(self, files: ModelFiles, engine: str = "", release: str = "") -> None:
        """Read the settings. Raise UnknownModelError if a setting is unknown or missing.

        Without an engine, the tokens are those of the model's processor.
        """
        self.files, self.engine, self.release = files, engine, release

    @abstractmethod
    def expand(self, modality: Modality, size: MediaSize, options: Mapping[str, Any]) -> Expansion:
        """Return an item's tokens. `options` are the request's `mm_processor_kwargs`."""

    def takes_hashes(self) -> bool:
        """Return True if the engine accepts a caller's hashes for items of native requests."""
        return True

    def merge(
        self, token_ids: list[int], items: list[PlacedItem]
    ) -> tuple[list[int], list[PlacedItem]]:
        """Return the expanded prompt as the engine joins it, because some families merge tokens."""
        return token_ids, items
