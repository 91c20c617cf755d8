"""TensorRT-LLM's hash of a media item: BLAKE3 over the engine's tagged encoding of the content."""

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from blake3 import blake3

from mmhash.arguments import check_bytes, check_optional_text, check_text
from mmhash.digest import Digest
from mmhash.engines import checks
from mmhash.engines.engine import CallerField, Engine, HashField, Step
from mmhash.engines.releases import Range, Releases
from mmhash.errors import InputError, InputTypeError, InputValueError
from mmhash.pil_image import is_image
from mmhash.torch_tensor import is_tensor

if TYPE_CHECKING:
    import torch
    from PIL import Image

# The recipe reached main with NVIDIA/TensorRT-LLM#14800, opened on 2026-05-31 after 1.3.0rc16. The
# source hash of a video followed with #16340, measured on 1.3.0rc20. The range is inferred from
# these dates: it lists the releases on PyPI that came later. No wheel was opened, because PyPI has
# only placeholders that fetch wheels from NVIDIA's index. Before, main hashed neither shape nor
# dtype, so 1.3.0rc15 and older are not known.
_TAG = b"trtllm.mm.hash.v1"
RELEASES = Releases(
    "trtllm", Range("1.3.0rc22", "1.3.0rc29", _TAG), Range("1.4.0rc0", "1.4.0rc1", _TAG)
)
LATEST = RELEASES.latest

# The members of a video's metadata that say which frames were sampled. The engine hashes them.
_SAMPLING = ("frames_indices", "fps", "duration", "total_num_frames")

# For these dtypes item() returns the same object again, so the engine would recurse forever.
_NO_PYTHON_SCALAR = (np.longdouble, np.clongdouble)

_HEX = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True, eq=False)
class Audio:
    """A clip: an array or tensor of samples, and the number of samples per second."""

    samples: Any
    sample_rate: float

    def __post_init__(self) -> None:
        if not isinstance(self.samples, np.ndarray) and not is_tensor(self.samples):
            raise InputTypeError(
                f"samples must be a numpy array or torch tensor, not {type(self.samples).__name__}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Video:
    """The sampled frames of a video, the metadata of the sampling, and the audio.

    `raw_bytes_hash` identifies the file of the frames. If given, the engine hashes it instead of
    the frames.
    """

    frames: Sequence[Any]
    metadata: dict[str, Any]
    audio: Audio | None = None
    raw_bytes_hash: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.frames, (list, tuple)):
            raise InputTypeError(
                f"frames must be a list of frames, not {type(self.frames).__name__}"
            )
        if not self.frames:
            raise InputValueError("frames must hold at least one frame")


@checks.readable("the item")
def mm_hash(item: Any, *, uuid: str | None = None, version: str = LATEST) -> str:
    """Return the engine's hash of one item, 64 hex digits.

    An item is a PIL image, an array or tensor, `Audio`, `Video`, bytes, a str, a number, or a list,
    tuple or dict of these. A `uuid` does not replace the content: the hash covers both.
    """
    tag = RELEASES.recipe(version)
    uuid = check_optional_text("uuid", uuid)
    state = blake3()
    for piece in _content(item, tag) if uuid is None else _marked(uuid, _content(item, tag)):
        state.update(piece)
    return state.hexdigest()


def mm_hashes(
    items: list[Any], *, uuids: list[str | None] | None = None, version: str = LATEST
) -> list[str]:
    """Return the hash of each item of a request; `uuids` is None or has an entry per item."""
    if not isinstance(items, list):
        raise InputTypeError(
            f"mm_hashes() takes a list of items, not one {type(items).__name__}: use mm_hash()"
        )
    if uuids is not None and len(uuids) != len(items):
        raise InputValueError(f"uuids has {len(uuids)} entries, but there are {len(items)} items")
    hashes = []
    for index, item in enumerate(items):
        try:
            hashes.append(mm_hash(item, uuid=uuids[index] if uuids else None, version=version))
        except InputError as error:
            raise type(error)(f"item {index}: {error}") from error
    return hashes


def int32s(digest: str | bytes | Digest) -> list[int]:
    """Return a 256-bit hash as the engine's KV cache stores it: 8 signed big-endian numbers."""
    match digest:
        case str():
            digest = check_text("digest", digest)
            if _HEX.fullmatch(digest) is None:
                raise InputValueError(f"digest must be 64 hex digits, not {digest[:80]!r}")
            raw = bytes.fromhex(digest)
        case bytes():
            raw = check_bytes("digest", digest)
        case Digest():
            raw = digest.bytes
        case _:
            raise InputTypeError(
                f"digest must be hex, bytes or a Digest, not {type(digest).__name__}"
            )
    if len(raw) != 32:
        raise InputValueError(f"digest must be 32 bytes, not {len(raw)}")
    return list(struct.unpack(">8i", raw))


def uuid(key: Digest) -> str:
    """Return a key as an entry of `multi_modal_uuids`."""
    return checks.key("uuid", key).hex()


_Pieces = Iterator[bytes | memoryview]


def _marked(uuid: str, content: _Pieces) -> _Pieces:
    yield b"<uuid>" + _utf8(uuid) + b"</uuid><content>"
    yield from content
    yield b"</content>"


def _content(item: Any, tag: bytes) -> _Pieces:
    yield tag
    match item:
        case Audio():
            yield from _audio(item)
        case Video():
            yield from _video(item)
        case _:
            yield from _value(item)


def _audio(audio: Audio) -> _Pieces:
    yield b"<audio>"
    yield from _value((audio.samples, int(audio.sample_rate)))


def _video(video: Video) -> _Pieces:
    yield b"<video>"
    sampling = {name: video.metadata[name] for name in _SAMPLING if name in video.metadata}
    yield from _value(sampling)
    if video.raw_bytes_hash is not None:
        yield b"<raw_bytes>" + _utf8(video.raw_bytes_hash)
    else:
        for frame in video.frames:
            yield b"<frame>"
            yield from _value(frame)
    if video.audio is not None:
        yield from _audio(video.audio)


def _value(value: Any) -> _Pieces:
    """Yield the engine's encoding of a value: a byte for the type, the header, the bytes."""
    match value:
        case str() | bytes() | int() | float():
            yield _scalar(value)
        case np.ndarray():
            yield from _array(value)
        case list() | tuple():
            yield b"\x20" + _u64(len(value))
            for part in value:
                yield from _value(part)
        case dict():
            yield b"\x22" + _u64(len(value))
            for name in _sorted(value):
                yield from _value(name)
                yield from _value(value[name])
        case _ if is_image(value):
            yield from _image(value)
        case _ if is_tensor(value):
            yield from _array(_array_of(value))
        case np.generic() if not isinstance(value, _NO_PYTHON_SCALAR):
            yield from _value(value.item())
        case _:
            raise InputTypeError(
                f"tensorrt-llm cannot hash a {type(value).__module__}.{type(value).__qualname__}"
            )


def _scalar(value: str | bytes | float) -> bytes:
    match value:
        case str():
            return b"\x01" + _prefixed(_utf8(value))
        case bytes():
            return b"\x02" + _prefixed(value)
        case bool():  # before int: a bool is an int too
            return b"\x05" + bytes([value])
        case int():
            return b"\x03" + _int(value)
        case _:
            return b"\x04" + struct.pack(">d", value)


def _array(values: np.ndarray[Any, Any]) -> _Pieces:
    if values.dtype.hasobject:
        raise InputTypeError("an object array holds pointers, not content: convert its elements")
    # Gives a 0-d array one dimension: the engine sees an array of one element.
    values = np.ascontiguousarray(values)
    yield b"".join(
        (
            b"\x11",
            _prefixed(values.dtype.str.encode()),
            bytes([values.ndim]),
            struct.pack(f">{values.ndim}Q", *values.shape),
            _u64(values.nbytes),
        )
    )
    if values.nbytes:
        yield values.reshape(-1).view(np.uint8).data


def _array_of(tensor: "torch.Tensor") -> np.ndarray[Any, Any]:
    try:
        return tensor.detach().cpu().numpy()
    except (TypeError, RuntimeError):
        raise InputTypeError(
            "tensorrt-llm hashes only tensors that numpy can hold, unlike a tensor of"
            f" {tensor.dtype} on {tensor.device}"
        ) from None


def _image(image: "Image.Image") -> _Pieces:
    width, height = image.size
    try:
        pixels = image.convert("RGBA").tobytes()
    except (OSError, SyntaxError, ValueError) as error:
        raise InputValueError(f"the {image.mode} image cannot be converted to RGBA") from error
    # Like the engine, read the mode last: decoding may change it.
    mode = image.mode.encode()
    yield b"\x10" + _prefixed(mode) + struct.pack(">II", width, height) + _u64(len(pixels))
    yield pixels


def _int(value: int) -> bytes:
    size = (value.bit_length() + 8) // 8  # one bit more, for the sign
    if size > 255:
        raise InputValueError("TensorRT-LLM encodes ints of at most 255 bytes")
    return bytes([size]) + value.to_bytes(size, "big", signed=True)


def _sorted(names: dict[Any, Any]) -> list[Any]:
    try:
        return sorted(names)
    except TypeError:
        raise InputTypeError("a dict's keys must have types that can be sorted together") from None


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InputValueError(
            "a str must not have lone surrogates: UTF-8 cannot encode them"
        ) from None


def _prefixed(data: bytes) -> bytes:
    return _u64(len(data)) + data


def _u64(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _explain(key: Digest, version: str) -> Iterator[Step]:
    del version
    yield "send in multi_modal_uuids", uuid(key)
    yield "as the 8 numbers of a block key", " ".join(map(str, int32s(key)))


ENGINE = Engine(
    name="trtllm",
    title="TensorRT-LLM",
    releases=RELEASES,
    explain=_explain,
    request_fields=lambda key, _: {"uuid": uuid(key)},
    hashes_of_key=lambda key: (uuid(key),),
    hash_fields=(
        HashField(
            "1.3.0rc22 to 1.4.0rc1",
            "Python API",
            "`multi_modal_uuids`",
            "`trtllm.uuid(key)`: 64 hex digits",
        ),
    ),
    caller_fields=(
        CallerField(
            "multi_modal_uuids",
            "hashes",
            "all",
            "prompts of the Python API",
            "identifiers by modality",
        ),
        CallerField(
            "disaggregated_params",
            "peers",
            "1.3.0rc22 to 1.4.0rc1",
            "OpenAI routes",
            "a context server, and its state of the request",
        ),
    ),
)
