"""The size and key of each item of a request, from bytes in the request or from the caller."""

from io import BufferedReader, BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mmhash.arguments import check_int, check_number
from mmhash.digest import Digest
from mmhash.engines import vllm
from mmhash.errors import InputTypeError, InputValueError
from mmhash.framing import frame
from mmhash.hashing import digest
from mmhash.hashing import key as key_of
from mmhash.io.images import read_image_file
from mmhash.prompts.families.family import MediaSize, Modality
from mmhash.prompts.headers import ImageHeader, read_size
from mmhash.prompts.headers.wav import read_samples
from mmhash.requests import MediaSource

if TYPE_CHECKING:
    from mmhash.prompts.planner import Planner


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


class FileNaming(NamedTuple):
    """How vLLM names images that have no uuid: everything that counts besides the file."""

    release: str
    model_id: str
    algorithm: str
    options: bytes
    """The request's `mm_processor_kwargs` and `media_io_kwargs`, as JSON."""

    def name(self, file: bytes | bytearray | memoryview, header: ImageHeader) -> str | None:
        """Return the name of an image, or None if the name depends on the decoded pixels."""
        if header.is_rgb is None:
            return None
        processing, media_io = msgspec.json.decode(self.options)
        return vllm.image_identifier(
            file,
            is_rgb=header.is_rgb,
            is_keyed=header.is_keyed,
            model_id=self.model_id,
            processor_kwargs=processing,
            media_io_kwargs=media_io,
            version=self.release,
            algorithm=self.algorithm,
        )


def read_media(planner: "Planner", source: MediaSource) -> Media:
    """Return an item's size and key. Raise UnknownMediaError if they cannot be known."""
    known = planner.options["media"]
    if known:  # otherwise skip restoring and hashing a long text
        found = known.get(planner.request.document.whole(source.text))
        if found is not None:
            _check_media(found, source.modality)
            return found
    tenant = planner.options["tenant"]
    if source.is_frames:
        frames = source.frames()
        size = planner.size_of_frames(read_size(frames[0]), len(frames))
        return Media(size, key_of(frames, tenant=tenant))
    if source.modality == "video" or source.is_remote:
        kind = f"{source.modality} items behind URLs" if source.is_remote else "videos"
        raise UnknownMediaError(f"pass the sizes and keys of {kind} to plan() as media")
    data = source.content()
    if source.modality == "audio":
        file = digest(data)
        key = frame("bytes", "", (), file, tenant=tenant)
        return Media(MediaSize(samples=read_samples(data)), key, file_digest=file)
    header = read_size(data)
    size = planner.size_of(header)
    if planner.options["of"] == "bytes":
        file = digest(data)
        key = frame("bytes", "", (), file, tenant=tenant)
        name = None if planner.naming is None else planner.naming.name(data, header)
        return Media(size, key, file_digest=file, engine_name=name)
    image = read_image_file(BufferedReader(BytesIO(data)))
    return Media(size, image.key(digest(image.pixels), tenant=tenant), image.exif_orientation)


def _check_media(media: Any, modality: Modality) -> None:
    """Refuse an impossible size or orientation from the caller."""
    if not isinstance(media, Media):
        raise InputTypeError(f"media must hold Media, not {type(media).__name__}")
    size = media.size
    least_side = 0 if modality == "audio" else 1
    check_int("exif_orientation", media.exif_orientation, 1, 8)
    check_int("width", size.width, least_side)
    check_int("height", size.height, least_side)
    check_int("frames", size.frames, 0)
    check_int("samples", size.samples, 0)
    for number in (size.fps or 0, *size.times):
        check_number("a number of MediaSize", number)
