"""What is asked of a model's processor, and its answers, as the helper process reads them."""

from typing import Literal

import msgspec

Modality = Literal["image", "video", "audio"]

MAX_MESSAGE = 64 << 10


class Question(msgspec.Struct, frozen=True, array_like=True):
    """Which tokens stand for an item of this size, with these options?"""

    modality: Modality
    target: str
    """The text in a prompt that stands for the item."""
    width: int = 0
    height: int = 0
    frames: int = 0
    fps: float | None = None
    times: tuple[float, ...] = ()
    samples: int = 0
    place: int = 0
    """The number of such items before it in the prompt, for processors that number items."""
    options: str = "{}"
    """The request's options for the processor: a JSON object with sorted members."""


class Answer(msgspec.Struct, array_like=True):
    """The tokens, or why the processor takes no such item."""

    runs: list[tuple[int, int]] = []
    """The ids in order, each with the number of its repetitions."""
    embeds: list[tuple[int, int]] = []
    """The ranges of the ids that take embeddings."""
    grid: tuple[int, ...] | None = None
    refusal: str = ""


class Facts(msgspec.Struct, array_like=True):
    """What is known of a processor once it is loaded; the answer to an empty message."""

    targets: dict[Modality, str] = {}
    """By modality: the text that the processor replaces."""
    versions: str = ""
    """The releases of the packages by which it counts."""
    error: str = ""
    """Why it could not be loaded."""
