"""The description of a model for the oracle: its processor, its files and its prompts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Recipe:
    """A model of a family, with settings of its own."""

    modality: str
    special: tuple[str, ...]
    """The tokens that the family adds to a tokenizer."""
    config: dict[str, Any]
    """config.json, as far as a plan reads it."""
    text: str
    """The text of one item in a prompt."""
    target: str
    """The part of the text that the processor replaces."""
    processor: Callable[[Path], Any]
    """Returns the processor, from the folder with the tokenizer; runs beside transformers."""
    options: tuple[dict[str, Any], ...] = ({},)
    """The `mm_processor_kwargs` of requests."""
    most: int = 4
    """The largest number of items in a prompt."""
    size: int = 10_000
    """The number of sizes of a full run."""
    vectors: int = 250
    """The number of sizes that the suite keeps."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Arguments of each call of the processor."""
    rewrite: Callable[[Path], None] | None = None
    """Changes the saved files, to those of older releases."""
