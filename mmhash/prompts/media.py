"""The size and key of each of a request's media, from bytes in the request or from the caller."""

from collections.abc import Callable, Mapping
from io import BufferedReader, BytesIO
from typing import Any, Literal, NamedTuple

from mmhash.arguments import check_int, check_number
from mmhash.digest import Digest
from mmhash.errors import InputTypeError, InputValueError
from mmhash.framing import frame
from mmhash.hashing import digest
from mmhash.io.images import read_image_file
from mmhash.prompts.families.family import MediaSize, Modality
from mmhash.prompts.file_names import FileNaming
from mmhash.prompts.headers import engine_size, read_size
from mmhash.prompts.headers.wav import read_samples
from mmhash.requests import EngineRequest, MediaSource


class Media(NamedTuple):
    """An item's size and key, supplied by the caller: for example, of an image behind a URL."""

    size: MediaSize
    key: Digest
    exif_orientation: int = 1
    """The EXIF orientation of an image, if `key` covers its pixels."""
    file_digest: Digest | None = None
    """The BLAKE3 digest of an image's file: SGLang's Rust server names the image by it."""
    engine_name: str | None = None
    """vLLM's own name of an image, if it is known."""


KnownMedia = Mapping[str, Media] | Callable[[str], Media | None]
"""A mapping from URLs to media, or a function that returns the media of a URL."""


class UnknownMediaError(InputValueError):
    """An item's content is not in the request, and the caller did not describe the item."""


class MediaReader:
    """Reads the media of one request."""

    def __init__(
        self,
        request: EngineRequest,
        known: KnownMedia,
        *,
        of: Literal["bytes", "pixels"],
        tenant: bytes | None,
        model_type: str,
        naming: FileNaming | None = None,
    ) -> None:
        self._request = request
        self._known = known
        self._of = of
        self._tenant = tenant
        self._model_type = model_type
        self._naming = naming
        self._read: dict[MediaSource, Media] = {}

    def read(self, source: MediaSource) -> Media:
        """Return an item's size and key. Raise UnknownMediaError if they cannot be known."""
        if source not in self._read:
            self._read[source] = self._find(source) or self._read_inline(source)
        return self._read[source]

    def _find(self, source: MediaSource) -> Media | None:
        """Return what the caller knows about an item."""
        known = self._known
        if not known:  # saves restoring and hashing a long text
            return None
        text = self._request.document.whole(source.text)
        found = known(text) if callable(known) else known.get(text)
        if found is not None:
            _check_media(found, source.modality)
        return found

    def _read_inline(self, source: MediaSource) -> Media:
        if source.modality == "audio" and not source.is_remote:
            clip = source.content()
            file = digest(clip)
            named = frame("bytes", "", (), file, tenant=self._tenant)
            return Media(MediaSize(samples=read_samples(clip)), named, file_digest=file)
        if source.modality != "image":
            raise UnknownMediaError(
                f"pass the size and key of this {source.modality} to plan() as media"
            )
        if source.is_remote:
            raise UnknownMediaError(
                "pass the sizes and keys of media behind URLs to plan() as media"
            )
        data = source.content()
        engine, release = self._request.engine.name, self._request.release
        header = read_size(data)
        width, height = engine_size(header, engine, release, model_type=self._model_type)
        size = MediaSize(width=width, height=height)
        if self._of == "bytes":
            file_digest = digest(data)
            named = frame("bytes", "", (), file_digest, tenant=self._tenant)
            own = None if self._naming is None else self._naming.name(data, header)
            return Media(size, named, file_digest=file_digest, engine_name=own)
        image = read_image_file(BufferedReader(BytesIO(data)))
        named = image.key(digest(image.pixels), tenant=self._tenant)
        return Media(size, named, image.exif_orientation)


def _check_media(media: Any, modality: Modality) -> None:
    """Refuse an impossible size or key from the caller."""
    if not isinstance(media, Media):
        raise InputTypeError(f"media must hold Media, not {type(media).__name__}")
    size = media.size
    if not isinstance(size, MediaSize):
        raise InputTypeError(f"the size of a Media must be a MediaSize, not {type(size).__name__}")
    if not isinstance(media.key, Digest):
        raise InputTypeError(f"the key of a Media must be a Digest, not {type(media.key).__name__}")
    check_int("exif_orientation", media.exif_orientation, 1, 8)
    least_side = 0 if modality == "audio" else 1
    check_int("width", size.width, least_side)
    check_int("height", size.height, least_side)
    check_int("frames", size.frames, 0)
    check_int("samples", size.samples, 0)
    if size.fps is not None:
        check_number("fps", size.fps)
    if not isinstance(size.times, tuple):
        raise InputTypeError(f"times must be a tuple, not {type(size.times).__name__}")
    for time in size.times:
        check_number("a time", time)
