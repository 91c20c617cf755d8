"""vLLM's identifier of an item: a hash of content and options, or the uuid of the request.

There are two steps: objects become plain values, and plain values become bytes.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

import numpy as np
from blake3 import blake3

from mmhash.arguments import check_bool, check_optional_text, check_text
from mmhash.digest import Digest
from mmhash.engines import checks
from mmhash.engines.vllm.releases import LATEST, RELEASES, Recipe
from mmhash.errors import InputTypeError, InputValueError
from mmhash.pil_image import is_image
from mmhash.torch_tensor import is_tensor

if TYPE_CHECKING:
    import torch
    from PIL import Image

Chunk = bytes | memoryview

_NULL, _SEQUENCE, _MAPPING, _LEAF = b"\0", b"\1", b"\2", b"\3"
_EXIF_IMAGE_ID = 0x800D

# The names of a Hugging Face processor's options that apply to one modality only.
SCOPES = {"image": "images_kwargs", "video": "videos_kwargs", "audio": "audio_kwargs"}

# Options of Qwen3-VL's processor that may be lists with an entry for each video.
_PER_VIDEO = ("fps", "num_frames")


class _Hasher(Protocol):
    def update(self, data: Chunk, /) -> object: ...
    def hexdigest(self) -> str: ...


_ALGORITHMS: dict[str, Callable[[], _Hasher]] = {
    "blake3": blake3,
    "sha256": hashlib.sha256,
    "sha512": hashlib.sha512,
}


@dataclass(frozen=True)
class _EncodedImage:
    """The file of an image, and how vLLM converted it."""

    file: memoryview | bytes
    io_config: Mapping[str, Any]

    @property
    def hashed(self) -> tuple[str, Any]:
        """The name and the value that vLLM hashes for this image."""
        if self.io_config:
            return "image", {"io_config": dict(self.io_config), "data": self.file}
        return "image", self.file


@dataclass(frozen=True)
class EncodedMedia:
    """Media with the bytes that it was decoded from: MediaWithBytes in vLLM.

    `io_config` is the decoder's configuration if that changed the media. vLLM hashes it since 0.27.
    """

    media: Any
    original_bytes: bytes
    io_config: Mapping[str, Any] | None = None


def uuid(key: Digest) -> str:
    """Return the text to send as an item's `uuid`, which vLLM uses unchanged."""
    return checks.key("uuid", key).hex()


def mm_hash(*, version: str = LATEST, algorithm: str = "blake3", **kwargs: Any) -> str:
    """Return the hash of named values in hex: an item under its modality, `model_id`, and options.

    Values are None, bytes, text, numbers, arrays, tensors, PIL images, EncodedMedia, or lists and
    dicts of these. The order of names does not matter, but the order inside a dict does. Types do
    not matter: True equals a text or bytes of the single byte 1.
    """
    return _hash(kwargs, RELEASES.recipe(version), algorithm)


def identifiers(
    modality: str,
    items: Sequence[Any],
    *,
    model_id: str,
    uuids: Sequence[str | None] | None = None,
    processor_kwargs: Mapping[str, Any] | None = None,
    media_io_kwargs: Mapping[str, Any] | None = None,
    per_video_options: bool = False,
    version: str = LATEST,
    algorithm: str = "blake3",
) -> list[str]:
    """Return vLLM's identifier of each item of one modality in a request.

    Without options, a uuid is used unchanged. With options, vLLM hashes the uuid together with the
    options. `media_io_kwargs` counts since 0.30. Set `per_video_options` for Qwen3-VL and models
    with the same processor. Since 0.32, if `fps` or `num_frames` is a list, vLLM hashes each entry
    with the identifier of its video.
    """
    per_video_options = check_bool("per_video_options", per_video_options)
    recipe = RELEASES.recipe(version)
    modality, model_id = check_text("modality", modality), check_text("model_id", model_id)
    items = checks.listed("items", items)
    if uuids is None and recipe.decoded_without_uuids:
        items = [item.media if isinstance(item, EncodedMedia) else item for item in items]
    uuids = [None] * len(items) if uuids is None else checks.listed("uuids", uuids)
    if len(uuids) != len(items):
        raise InputValueError(f"uuids needs an entry per item: {len(items)}, not {len(uuids)}")
    processor = (
        {} if processor_kwargs is None else checks.named("processor_kwargs", processor_kwargs)
    )
    options = _options(
        modality,
        processor,
        {} if media_io_kwargs is None else checks.named("media_io_kwargs", media_io_kwargs),
        recipe,
    )
    if modality == "model_id" or options.keys() & {modality, "model_id"}:
        raise InputValueError("modality, 'model_id' and the names in processor_kwargs must differ")

    def identifier(item: Any, given: str | None) -> str:
        given = check_optional_text("an entry of uuids", given)
        if given is not None and not options:
            return given
        content = item if given is None else given
        return _hash({"model_id": model_id, modality: content, **options}, recipe, algorithm)

    found = list(map(identifier, items, uuids))
    if not (per_video_options and recipe.per_video_options and modality == "video" and found):
        return found
    lists = _per_video_lists(processor, len(found))
    if not lists:
        return found
    return [
        _hash(
            {"mm_hash": one, **{name: values[index] for name, values in lists.items()}},
            recipe,
            algorithm,
        )
        for index, one in enumerate(found)
    ]


def hashes_files(version: str = LATEST) -> bool:
    """Return True if vLLM names an image that it decodes itself by the image's file."""
    return not RELEASES.recipe(version).decoded_without_uuids


def image_identifier(
    file: bytes | bytearray | memoryview,
    *,
    is_rgb: bool,
    model_id: str,
    is_keyed: bool = False,
    processor_kwargs: Mapping[str, Any] | None = None,
    media_io_kwargs: Mapping[str, Any] | None = None,
    version: str = LATEST,
    algorithm: str = "blake3",
) -> str | None:
    """Return the identifier that vLLM's server derives from the file of a request's image.

    Return None for releases before 0.27, and if `media_io_kwargs` asks for an `image_mode` other
    than RGB, because such identifiers depend on the pixels.

    Args:
        file: The encoded image.
        is_rgb: True if Pillow decodes it in mode RGB and vLLM need not convert it.
        model_id: vLLM's name of the model: its directory, or its name on the Hub.
        is_keyed: True if one colour of the image is transparent (a PNG with tRNS).
        processor_kwargs: The request's `mm_processor_kwargs`.
        media_io_kwargs: The request's `media_io_kwargs`.
        version: The release of the engine.
        algorithm: The engine's `--mm-hasher-algorithm`.
    """
    recipe = RELEASES.recipe(version)
    media_io = {} if media_io_kwargs is None else checks.named("media_io_kwargs", media_io_kwargs)
    processor = (
        {} if processor_kwargs is None else checks.named("processor_kwargs", processor_kwargs)
    )
    loading = checks.named("media_io_kwargs.image", media_io.get("image") or {})
    mode = loading.get("image_mode", "RGB")
    if recipe.decoded_without_uuids or mode not in {"RGB", None}:
        return None
    is_converted = mode is not None and (not is_rgb or (is_keyed and recipe.converts_keyed))
    background = loading.get("rgba_background_color", (255, 255, 255))
    io_config = {"image_mode": mode, "rgba_background_color": background} if is_converted else {}
    content = _EncodedImage(memoryview(file), io_config)
    options = _options("image", processor, media_io, recipe)
    return _hash({"model_id": model_id, "image": content, **options}, recipe, algorithm)


def _per_video_lists(processor: Mapping[str, Any], videos: int) -> dict[str, list[Any]]:
    """Return the options that are lists with an entry for each video."""
    scoped = processor.get(SCOPES["video"])
    merged = {**processor, **({} if scoped is None else checks.named(SCOPES["video"], scoped))}
    lists = {
        name: checks.listed(name, merged[name])
        for name in _PER_VIDEO
        if isinstance(merged.get(name), list)
    }
    for name, values in lists.items():
        if len(values) < videos:
            raise InputValueError(f"{name} needs an entry per video: {videos}, not {len(values)}")
    return lists


def _options(
    modality: str, processor: Mapping[str, Any], media_io: Mapping[str, Any], recipe: Recipe
) -> dict[str, Any]:
    """Return the options that belong to an item, under the names with which they are hashed."""
    if not recipe.scoped_options:
        return dict(processor)
    if modality in SCOPES:
        others = set(SCOPES.values()) - {SCOPES[modality]}
        processor = {name: value for name, value in processor.items() if name not in others}
        media_io = {modality: media_io[modality]} if media_io.get(modality) else {}
    options = {"media_io_kwargs": dict(media_io), "mm_processor_kwargs": dict(processor)}
    return {name: values for name, values in options.items() if values}


@checks.readable("a value")
def _hash(factors: Mapping[str, Any], recipe: Recipe, algorithm: str) -> str:
    algorithm = check_text("algorithm", algorithm)
    if algorithm not in _ALGORITHMS:
        raise InputValueError(
            f"unknown algorithm {algorithm[:40]!r}: choose one of {', '.join(_ALGORITHMS)}"
        )
    if not all(isinstance(name, str) for name in factors):
        raise InputTypeError("the names of processor_kwargs must be text")
    hasher = _ALGORITHMS[algorithm]()
    chunks = _framed if recipe.framed else _unframed
    for name in sorted(factors):
        for chunk in chunks(name, factors[name], recipe):
            hasher.update(chunk)
    return hasher.hexdigest()


def _unframed(name: str, value: Any, recipe: Recipe) -> Iterator[Chunk]:
    """Yield names and bytes one after another; a value in a list or dict has a dotted name."""
    match value:
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _unframed(f"{name}.{index}", item, recipe)
        case dict():
            for key, item in value.items():
                yield from _unframed(f"{name}.{_name(key)}", item, recipe)
        case _:
            yield _utf8(name)
            if value is not None:
                plain = _plain(value, recipe)
                yield from _unframed(*plain, recipe) if isinstance(plain, tuple) else (plain,)


def _framed(name: str, value: Any, recipe: Recipe) -> Iterator[Chunk]:
    """Yield a name and a value, each preceded by type and length."""
    yield from _field(_utf8(name))
    yield from _framed_value(value, recipe)


def _framed_value(value: Any, recipe: Recipe) -> Iterator[Chunk]:
    match value:
        case None:
            yield _NULL
        case list() | tuple():
            yield _SEQUENCE + _length(len(value))
            for item in value:
                yield from _framed_value(item, recipe)
        case dict():
            yield _MAPPING + _length(len(value))
            for key, item in value.items():
                yield from _framed(_name(key), item, recipe)
        case _:
            yield _LEAF
            plain = _plain(value, recipe)
            yield from _framed(*plain, recipe) if isinstance(plain, tuple) else _field(plain)


def _name(key: Any) -> str:
    if type(key) not in {str, int, float, bool, type(None)}:
        raise InputTypeError(f"a dict's names must be texts or numbers, not {type(key).__name__}")
    try:
        return str(key)
    except ValueError:
        raise InputValueError("a dict has a number with too many digits as a name") from None


def _field(chunk: Chunk) -> Iterator[Chunk]:
    yield _length(chunk.nbytes if isinstance(chunk, memoryview) else len(chunk))
    yield chunk


def _length(number: int) -> bytes:
    return number.to_bytes(8, "little")


def _plain(value: Any, recipe: Recipe) -> Chunk | tuple[str, Any]:
    """Return a leaf's bytes, or the name and the plainer values that are hashed instead."""
    match value:
        case bytes() | memoryview():
            return value
        case str():
            return _utf8(value)
        case int() | float():
            return _number(value)
        case EncodedMedia():
            return _encoded(value, recipe)
        case _EncodedImage():
            return value.hashed
        case np.ndarray():
            return "ndarray", _array(value)
    if is_image(value):
        return _image_id(value, recipe) or ("image", _image(value))
    if is_tensor(value):
        return "tensor", _tensor(value)
    raise InputTypeError(
        f"vLLM pickles a {type(value).__module__}.{type(value).__qualname__}, and its hash differs"
        " between processes: pass bytes, text, numbers, arrays, tensors or PIL images"
    )


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InputValueError("a name or value must be text that UTF-8 can encode") from None


def _number(value: float) -> bytes:
    scalar = np.array(value)
    if scalar.dtype.hasobject:
        raise InputValueError(
            "vLLM hashes an int above 64 bits by its memory address, which differs in each process"
        )
    return scalar.tobytes()


def _array(values: np.ndarray[Any, Any]) -> dict[str, Any]:
    if values.dtype.hasobject:
        raise InputTypeError("an object array holds pointers, not content: convert its elements")
    if isinstance(values, np.ma.MaskedArray):
        raise InputTypeError("a masked array has no bytes where it is masked: call filled() first")
    data: Any
    if values.ndim == 0:
        data = values.item()
    elif values.flags.c_contiguous:
        data = values.reshape(-1).view(np.uint8).data
    else:
        data = values.tobytes()
    return {"dtype": values.dtype.str, "shape": values.shape, "data": data}


def _tensor(tensor: "torch.Tensor") -> Any:
    import torch  # noqa: PLC0415  (torch is imported already)

    try:
        tensor = tensor.cpu()
        if tensor.dtype is not torch.bfloat16:
            return tensor.numpy()
        return {
            "original_dtype": str(tensor.dtype),
            "original_shape": tuple(tensor.shape),
            "data": tensor.contiguous().view(tensor.numel()).view(torch.uint8).numpy(),
        }
    except (RuntimeError, TypeError) as error:
        raise InputTypeError(f"vLLM cannot hash this {tensor.dtype} tensor: {error}") from error


def _image(image: "Image.Image") -> dict[str, Any]:
    try:
        content: dict[str, Any] = {"mode": image.mode, "data": np.asarray(image)}
    except Exception as error:  # Pillow's parsers raise many kinds of errors
        raise InputValueError("the image is truncated or damaged: it cannot be decoded") from error
    # Read the palette after decoding, which determines it.
    if image.palette is not None:
        content["palette"] = image.palette.palette
        if image.palette.rawmode is not None:
            content["palette_rawmode"] = image.palette.rawmode
    return content


def _image_id(image: "Image.Image", recipe: Recipe) -> bytes | None:
    """Return the UUID in an image's EXIF, which replaces its pixels, or None."""
    try:
        image_id = image.getexif().get(_EXIF_IMAGE_ID)
    except Exception as error:  # Pillow does not document what it raises for damaged EXIF
        if recipe.lenient_exif:
            return None
        raise InputValueError("the image's EXIF is damaged, and vLLM refuses it") from error
    return image_id.bytes if isinstance(image_id, UUID) else None


def _encoded(encoded: EncodedMedia, recipe: Recipe) -> bytes | tuple[str, Any]:
    media, original = encoded.media, encoded.original_bytes
    if not isinstance(original, bytes):
        raise InputTypeError(f"original_bytes must be bytes, not {type(original).__name__}")
    if is_image(media):
        if image_id := _image_id(media, recipe):
            return image_id
        counts = recipe.encoded_video and encoded.io_config
        io_config = checks.named("io_config", encoded.io_config) if counts else {}
        return _EncodedImage(original, io_config).hashed
    is_frames = isinstance(media, np.ndarray) or (recipe.tensor_video and is_tensor(media))
    if recipe.encoded_video and is_frames:
        return "video", media if media.nbytes < len(original) else original
    raise InputTypeError(
        f"this release of vLLM pickles encoded media that holds a {type(media).__qualname__}"
    )
