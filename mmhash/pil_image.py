"""The caller's PIL image objects: read in their current state, and left unchanged.

image.py defines the content of an image; this module finds which frames an image object stands for,
and reads them without an effect on the object. An image of several frames is read through a second
image object: to seek the caller's would drop its edits, and cannot be undone. Two threads never
read one image at the same time, because Pillow's objects do not support it (a GIF crashed the
interpreter).
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from mmhash.errors import InputTypeError, InputValueError, MMHashError
from mmhash.forks import call_in_child
from mmhash.image import DAMAGE, describe, encode_transparency, pad_palette, read_image

if TYPE_CHECKING:
    from PIL import Image

# The state of Pillow's WebP decoder, which returns the frames only in order.
_WEBP_LOADED = "_WebPImageFile__loaded"
_WEBP_SHOWN = "_WebPImageFile__logical_frame"
_WEBP_NEXT = "_WebPImageFile__physical_frame"
_WEBP_TIME = "_WebPImageFile__timestamp"


def is_image(item: Any) -> bool:
    """Return True if `item` is a PIL image; Pillow need not be installed."""
    kind = getattr(sys.modules.get("PIL.Image"), "Image", None)
    return kind is not None and isinstance(item, kind)


def read_pil_image(image: "Image.Image") -> tuple[int, bytes | bytearray, bytes]:
    """Return the number of frames, the pixels of all, and their descriptions as in the spec.

    An open file of several frames stands for all of them. An image without further frames (a copy,
    an unpickled image, one whose file is closed) stands for its current frame.
    """
    with _named_errors(image), _locks.of(image):
        if not _may_have_frames(image):
            return 1, *_read_shown(image)
        with _locks.of(_file_of(image)), _reopening(image) as reopen:
            frames = reopen()
            if getattr(frames, "n_frames", 1) == 1:
                return 1, *_read_shown(image)
            if not _is_unedited(image, reopen):
                raise InputValueError(
                    "the image has several frames, and the current one is not as in its file: it"
                    " was edited, or one of Pillow's settings was changed. Hash a copy() of each"
                    " frame that counts"
                )
            return read_image(reopen())


def count_frames(image: "Image.Image") -> int:
    """Return the number of frames that a key of `image` covers, without seeking it."""
    with _named_errors(image):
        if not _may_have_frames(image):
            return 1
        known = _known_count(image)
        if known is not None:
            return known
        with _locks.of(image), _locks.of(_file_of(image)), _reopening(image) as reopen:
            return int(getattr(reopen(), "n_frames", 1))


class _Locks:
    """The locks of objects; each exists only while a thread holds or awaits it."""

    def __init__(self) -> None:
        self._reset()
        # A forked child would wait forever for locks that the parent's other threads held.
        call_in_child(self, _Locks._reset)

    def _reset(self) -> None:
        self._locks: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self._changing = threading.Lock()

    @contextmanager
    def of(self, shared: object) -> Iterator[None]:
        """Hold an object's lock."""
        with self._changing:
            lock = self._locks.setdefault(id(shared), threading.RLock())
        with lock:
            yield


_locks = _Locks()


@contextmanager
def _named_errors(image: "Image.Image") -> Iterator[None]:
    """Convert exceptions of Pillow, a file object or a subclass to errors of the library."""
    try:
        yield
    except (MMHashError, MemoryError):
        raise
    except Exception as error:
        raise InputValueError(_why_unreadable(image, error)) from error


def _why_unreadable(image: "Image.Image", error: Exception) -> str:
    from PIL import Image  # noqa: PLC0415  (imported already: the input is an image)
    from PIL._util import DeferredError  # noqa: PLC0415

    attributes = vars(image)
    if isinstance(attributes.get("_im"), DeferredError):
        return "the image is closed, and its pixels are gone: hash it before close()"
    if attributes.get("tile") and _file_of(image) is None:
        return "the image's file was closed before its pixels were read: call load() before that"
    if isinstance(error, Image.DecompressionBombError):
        return "the image has more pixels than PIL.Image.MAX_IMAGE_PIXELS allows"
    if isinstance(error, DAMAGE):
        return "the image is truncated or damaged: it cannot be decoded"
    return (
        f"Pillow cannot read the pixels of this {type(image).__qualname__}"
        f" ({type(error).__name__}): give an image that Pillow made, or its copy()"
    )


def _file_of(image: "Image.Image") -> Any:
    """Return the open file of an image, or None. `_fp` stays when load() sets `fp` to None."""
    from PIL._util import DeferredError  # noqa: PLC0415  (imported already: the input is an image)

    attributes = vars(image)
    file = attributes.get("_fp") or attributes.get("fp")
    if file is None or isinstance(file, DeferredError) or getattr(file, "closed", False):
        return None
    return file


def _known_count(image: "Image.Image") -> int | None:
    """Return `n_frames` if it is an attribute: GIF and TIFF have a property, which seeks."""
    attributes = vars(image)
    count = attributes.get("n_frames", attributes.get("_n_frames"))
    return count if isinstance(count, int) else None


def _may_have_frames(image: "Image.Image") -> bool:
    """Decide without reading the file if there can be more frames than the current one."""
    from PIL import Image  # noqa: PLC0415  (imported already: the input is an image)

    if type(image).seek is Image.Image.seek or _known_count(image) == 1:
        return False
    return "_decoder" in vars(image) or _file_of(image) is not None


def _read_shown(image: "Image.Image") -> tuple[bytes, bytes]:
    """Return the pixels and the description of the current frame.

    An image that is not loaded yet is loaded, as by any method of Pillow that reads pixels. The
    position of a file object of the caller does not change.
    """
    file = None if getattr(image, "_exclusive_fp", True) else _file_of(image)
    position = None if file is None else file.tell()
    try:
        pixels = image.tobytes()
    finally:
        if file is not None and not file.closed:
            file.seek(position)
    return pixels, describe(image)


@contextmanager
def _reopening(image: "Image.Image") -> Iterator[Callable[[], "Image.Image"]]:
    """Yield a function that opens the image's file again, as another object."""
    if "_decoder" not in vars(image):
        file = _file_of(image)
        position = file.tell()
        try:
            file.seek(0)
            content = file.read()
        finally:
            file.seek(position)
        yield lambda: _open_again(image, content)
        return
    try:
        yield lambda: _over_decoder(image)
    finally:
        # The second object advanced the shared decoder: the caller's image restarts it when it
        # loads the next frame.
        if _WEBP_NEXT in vars(image):
            vars(image)["_decoder"].reset()
            vars(image).update({_WEBP_NEXT: 0, _WEBP_TIME: 0})


def _open_again(image: "Image.Image", content: bytes) -> "Image.Image":
    """Open the file with the same plugin: Image.open could choose another, and warns about size."""
    kind: Any = type(image)
    try:
        again: Image.Image = kind(BytesIO(content))
    except Exception as error:
        raise InputTypeError(
            f"the frames of this {kind.__qualname__} cannot be read: its class does not open"
            " its file a second time. Hash a copy() of each frame that counts"
        ) from error
    return again


def _over_decoder(image: "Image.Image") -> "Image.Image":
    """Return a second image that shares the decoder, which has the file's bytes (WebP, AVIF)."""
    twin: Any = object.__new__(type(image))
    vars(twin).update(vars(image), _im=None, fp=None, tile=[], info={})
    vars(twin).pop("_AvifImageFile__frame", None)  # seek() does nothing at the frame where it is
    info = twin._decoder.get_info()
    if _WEBP_NEXT in vars(image):
        rawmode = info[4]
        twin._size, twin._mode = info[0], "RGB" if rawmode == "RGBX" else rawmode
        twin._reset()
    else:
        twin._size, twin._mode = info[0], info[2]
    twin.seek(0)
    again: Image.Image = twin
    return again


def _is_unedited(image: "Image.Image", reopen: Callable[[], "Image.Image"]) -> bool:
    """Compare the current frame with the file's, as Pillow decodes it after any use of the image.

    A later frame of a GIF enlarges all frames once it was visited, an APNG that was rewound has
    lost its palette, and one that disposes frames differs if these were loaded.
    """
    return any(
        _shows_the_same(image, _follow(image, reopen(), rewind=rewind, load=load))
        for rewind in (False, True)
        for load in (False, True)
    )


def _follow(
    image: "Image.Image", twin: "Image.Image", *, rewind: bool, load: bool
) -> "Image.Image":
    """Seek a newly opened twin to the current frame of the image."""
    number = image.tell()
    _visit(twin, number, load=load)
    try:
        while rewind or twin.size != image.size:
            _visit(twin, twin.tell() + 1, load=load)
    except EOFError:  # no frame left to visit
        pass
    _visit(twin, number, load=load)
    return twin


def _visit(twin: "Image.Image", number: int, *, load: bool) -> None:
    if not load or twin.tell() == number:
        twin.seek(number)
        return
    for earlier in range(0 if number < twin.tell() else twin.tell(), number):
        twin.seek(earlier)
        twin.load()
    twin.seek(number)


def _shows_the_same(image: "Image.Image", twin: "Image.Image") -> bool:
    if _is_pending(image):
        same = _header(image) == _header(twin)
    else:
        twin.load()
        same = _content(image) == _content(twin)
    return same and _earlier_frames(image) == _earlier_frames(twin)


def _is_pending(image: "Image.Image") -> bool:
    """Return True if the current frame is not decoded yet."""
    attributes = vars(image)
    if attributes.get("tile") or attributes.get("_im") is None:
        return True
    return getattr(image, _WEBP_LOADED, None) != getattr(image, _WEBP_SHOWN, None)


def _header(image: "Image.Image") -> tuple[Any, ...]:
    """Return the description of a frame without decoding it, as Pillow's own methods would."""
    from PIL import Image  # noqa: PLC0415  (imported already: the input is an image)

    colors = b""
    if image.mode in {"P", "PA"} and image.palette is not None:
        swatch = Image.new("P", (1, 1)).im
        swatch.putpalette(image.palette.mode, *image.palette.getdata())
        colors = pad_palette(swatch.getpalette("RGBA", "RGBA"))
    transparency = encode_transparency(image.info.get("transparency"))
    return image.mode, image.size, colors, transparency


def _content(image: "Image.Image") -> tuple[Any, ...]:
    """Return everything of a decoded frame that a key covers."""
    frame = image._new(image.im)  # shares the pixels, and has no file
    return image.mode, image.size, describe(frame), frame.tobytes()


# GIF and APNG draw a frame over the one before, and keep it in these attributes.
_PREVIOUS_FRAMES = {"GIF": ("_im", "dispose"), "PNG": ("_im", "_prev_im")}


def _earlier_frames(image: "Image.Image") -> list[Any]:
    """Return the pixels of earlier frames that Pillow keeps: an edit of them would show there."""
    from PIL import Image  # noqa: PLC0415  (imported already: the input is an image)

    names = _PREVIOUS_FRAMES.get(image.format or "", ())
    cores = [vars(image).get(name) for name in names]
    return [
        None if core is None else (core.mode, core.size, Image.Image()._new(core).tobytes())
        for core in cores
    ]
