"""The items of a prompt: their sizes and keys, and the tokens that stand for them."""

from typing import Any, NamedTuple

from mmhash.arguments import check_int, check_number
from mmhash.digest import Digest
from mmhash.errors import InputTypeError, InputValueError, LimitError
from mmhash.prompts.limits import MAX_TOKENS
from mmhash.requests import Modality


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


class Media(NamedTuple):
    """An item's size and key, supplied by the caller, for example for an image behind a URL."""

    size: MediaSize
    key: Digest
    exif_orientation: int = 1
    """The EXIF orientation of an image, if `key` covers its pixels."""
    file_digest: Digest | None = None
    """The BLAKE3 digest of an image's file, by which SGLang's Rust server names the image."""
    engine_name: str | None = None
    """vLLM's own name of an image, if it is known."""


class UnknownMediaError(InputValueError):
    """An item's content is not in the request, and the caller did not describe the item."""


class Expansion(NamedTuple):
    """The tokens that stand for an item."""

    token_ids: list[int]
    embeds: list[tuple[int, int]]
    """The ranges [start, end) of `token_ids` that take embeddings."""
    grid: tuple[int, ...] | None = None
    """The item's grid of patches, if the processor returns a grid."""


class PlacedItem(NamedTuple):
    """An item in the expanded prompt. Ranges are [start, end) in the prompt's token ids."""

    modality: Modality
    start: int
    end: int
    embeds: list[tuple[int, int]]
    grid: tuple[int, ...] | None = None


def check_media(media: Any, modality: Modality) -> None:
    """Refuse an impossible size or orientation from the caller."""
    if not isinstance(media, Media):
        raise InputTypeError(f"media must hold Media, not {type(media).__name__}")
    size = media.size
    if not isinstance(size, MediaSize):
        raise InputTypeError(f"a size must be a MediaSize, not {type(size).__name__}")
    least_side = 0 if modality == "audio" else 1
    check_int("exif_orientation", media.exif_orientation, 1, 8)
    check_int("width", size.width, least_side)
    check_int("height", size.height, least_side)
    check_int("frames", size.frames, 0)
    check_int("samples", size.samples, 0)
    for number in (size.fps or 0, *size.times):
        check_number("a number of MediaSize", number)


def check_count(count: int) -> None:
    """Raise LimitError if an item has more tokens than a prompt may have."""
    if count > MAX_TOKENS:
        raise LimitError(f"an item has {count} tokens, and a prompt may have at most {MAX_TOKENS}")
