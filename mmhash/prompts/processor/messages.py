"""The questions to a model's processor and its answers, as sent to and from the helper."""

import msgspec

from mmhash.requests import Modality

MAX_MESSAGE = 64 << 10


class Question(msgspec.Struct, frozen=True, array_like=True):
    """Asks which tokens stand for an item of this size, with these options."""

    modality: Modality
    target: str
    """The text that stands for the item in a prompt."""
    width: int = 0
    height: int = 0
    frames: int = 0
    fps: float | None = None
    times: tuple[float, ...] = ()
    samples: int = 0
    place: int = 0
    """The number of earlier items of this modality, for processors that number items."""


class Answer(msgspec.Struct, array_like=True):
    """An item's tokens, or the reason why the processor refuses the item."""

    runs: list[tuple[int, int]] = []
    """The ids in order, each with its number of repetitions."""
    embeds: list[tuple[int, int]] = []
    """The ranges of the ids that take embeddings."""
    grid: tuple[int, ...] | None = None
    refusal: str = ""


class Facts(msgspec.Struct, array_like=True):
    """Facts about a loaded processor, sent in answer to None in place of a question."""

    targets: dict[Modality, str] = {}
    """For each modality, the text that the processor replaces."""
    versions: str = ""
    """The releases of the packages that determine the processor's counts."""
    error: str = ""
    """The reason why the processor could not be loaded, or an empty text."""
