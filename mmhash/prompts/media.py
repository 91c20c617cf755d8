"""Media of a request: its size and its key, from bytes in the request or from the caller."""

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
from mmhash.requests import EngineRequest, MediaSource


class Media(NamedTuple):
    """The size and key of an item that the caller knows, such as one behind a URL."""

    size: MediaSize
    key: Digest
    exif_orientation: int = 1
    """The orientation of an image whose key is that of its pixels."""
    file_digest: Digest | None = None
    """The BLAKE3 digest of an image's file, by which a server in Rust names it."""
    engine_name: str | None = None
    """vLLM's own name of an image, if it is known."""


KnownMedia = Mapping[str, Media] | Callable[[str], Media | None]
"""Media by URL, or a function that returns the media of a URL."""


class UnknownMediaError(InputValueError):
    """Media is neither in the request nor known to the caller."""


class MediaReader:
    """The media of one request."""

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
        """Return the size and key of media; what cannot be known is an UnknownMediaError."""
        if source not in self._read:
            self._read[source] = self._find(source) or self._read_inline(source)
        return self._read[source]

    def _find(self, source: MediaSource) -> Media | None:
        """Return what the caller knows of media."""
        known = self._known
        if not known:  # a long text would be made, and hashed as a name, for nothing
            return None
        text = self._request.document.whole(source.text)
        found = known(text) if callable(known) else known.get(text)
        if found is not None:
            _check_media(found, source.modality)
        return found

    def _read_inline(self, source: MediaSource) -> Media:
        if source.modality != "image":
            raise UnknownMediaError(f"give the size and key of this {source.modality} to plan()")
        if source.is_remote:
            raise UnknownMediaError("give the sizes and keys of media behind URLs to plan()")
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
    """Refuse media of the caller whose size or key cannot be."""
    if not isinstance(media, Media):
        raise InputTypeError(f"media holds Media, not {type(media).__name__}")
    size = media.size
    if not isinstance(size, MediaSize):
        raise InputTypeError(f"size of a Media is a MediaSize, not {type(size).__name__}")
    if not isinstance(media.key, Digest):
        raise InputTypeError(f"key of a Media is a Digest, not {type(media.key).__name__}")
    check_int("exif_orientation", media.exif_orientation, 1, 8)
    least_side = 0 if modality == "audio" else 1
    check_int("width", size.width, least_side)
    check_int("height", size.height, least_side)
    check_int("frames", size.frames, 0)
    check_int("samples", size.samples, 0)
    if size.fps is not None:
        check_number("fps", size.fps)
    if not isinstance(size.times, tuple):
        raise InputTypeError(f"times is a tuple, not {type(size.times).__name__}")
    for time in size.times:
        check_number("a time", time)
