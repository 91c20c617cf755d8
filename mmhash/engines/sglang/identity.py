"""SGLang's identities of media and processor artifacts, which decide what the engine reuses."""

import dataclasses
import hashlib
import json
import struct
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mmhash.arguments import check_int, check_text
from mmhash.engines import checks
from mmhash.engines.sglang.features import tensor_bytes
from mmhash.engines.sglang.releases import LATEST, RELEASES, require
from mmhash.errors import InputTypeError, InputValueError
from mmhash.pil_image import is_image
from mmhash.torch_tensor import is_tensor
from mmhash.view import bytes_of

if TYPE_CHECKING:
    import torch
    from PIL import Image

_PREFIX = "sha256:"


@checks.readable("media")
def content_hash(media: Any) -> str:
    """Return the text to send as `image_url.content_hash`: `sha256:` and the hash of the media.

    Bytes are hashed as they are. A decoded image, a tensor or an array is hashed with its mode or
    dtype and its shape, as the engine hashes such an object passed in process.
    """
    if is_image(media):
        return _hash_fields(*_image_fields(media))
    if is_tensor(media):
        shape = json.dumps(list(media.shape)).encode()
        content = _tensor_bytes(media, is_copied=True)
        return _hash_fields(b"torch", str(media.dtype).encode(), shape, content)
    if isinstance(media, np.ndarray):
        _check_array(media)
        media = np.ascontiguousarray(media)  # gives a 0-d array a dimension, as the engine does
        shape = json.dumps(list(media.shape)).encode()
        return _hash_fields(b"numpy", media.dtype.str.encode(), shape, media.tobytes())
    if isinstance(media, (bytes, bytearray, memoryview)):
        return _PREFIX + hashlib.sha256(bytes_of(media)).hexdigest()
    raise InputTypeError(f"SGLang has no content hash of a {type(media).__name__}")


def _tensor_bytes(tensor: "torch.Tensor", *, is_copied: bool = False) -> memoryview:
    if not tensor.shape and tensor.dtype.itemsize > 1:
        raise InputTypeError("SGLang takes no 0-d tensor of more than one byte")
    return tensor_bytes(tensor, is_copied=is_copied)


def parse_content_hash(text: str | None) -> str | None:
    """Return a `content_hash` as the engine stores it: in lower case, or None for None."""
    if text is None:
        return None
    if type(text) is not str:
        text = check_text("content_hash", text)
    if not text.startswith(_PREFIX):
        raise InputValueError("content_hash must have the form sha256:<64 hex digits>")
    _parse_digest(text)
    return _PREFIX + text.removeprefix(_PREFIX).lower()


def _parse_digest(text: str) -> bytes:
    digits = text.removeprefix(_PREFIX)
    if len(digits) != 64:
        raise InputValueError(f"content_hash must have 64 hex digits, not {len(digits)}")
    try:
        return bytes.fromhex(digits)  # allows blanks between two bytes, as the engine does
    except ValueError:
        raise InputValueError("content_hash must have only hex digits after sha256:") from None


def namespaced_hash(item_hash: int, namespace: str | None, *, version: str = LATEST) -> int:
    """Return an item's hash bound to the identity of its processor, or unbound without one."""
    require(RELEASES.recipe(version).namespaces, "namespaced hashes", "0.5.20", version)
    if namespace is None:
        return check_int("an item's hash", item_hash, 0)
    item_hash = check_int("an item's hash", item_hash, 0, 2**256 - 1)
    if parse_content_hash(namespace) is None:
        raise InputValueError("namespace must have the form sha256:<64 hex digits>")
    number = item_hash.to_bytes(max(1, (item_hash.bit_length() + 7) // 8), "big")
    bound = _hash_fields(b"multimodal-feature-v1", _parse_digest(namespace), number)
    return int(bound.removeprefix(_PREFIX)[:16], 16)


@checks.readable("preprocess_kwargs")
def artifact_key(
    content_digest: str,
    *,
    modality: str,
    processor_fingerprint: str,
    preprocess_kwargs: Mapping[str, Any] | None = None,
) -> str:
    """Return an artifact's key, which covers the content, the processor and its arguments."""
    if preprocess_kwargs is not None and not isinstance(preprocess_kwargs, Mapping):
        raise InputTypeError(
            f"preprocess_kwargs must be a dict or None, not {type(preprocess_kwargs).__name__}"
        )
    identity = {
        "content_digest": parse_content_hash(content_digest),
        "modality": check_text("modality", modality),
        "processor_fingerprint": check_text("processor_fingerprint", processor_fingerprint),
        "preprocess_kwargs": {} if preprocess_kwargs is None else preprocess_kwargs,
    }
    return _PREFIX + hashlib.sha256(_as_json(_canonical(identity)).encode()).hexdigest()


def _check_array(array: np.ndarray[Any, Any]) -> None:
    if array.dtype.hasobject:
        raise InputTypeError("an object array holds pointers, not content: convert its elements")


def _hash_fields(*fields: bytes | memoryview) -> str:
    hasher = hashlib.sha256()
    for field in fields:
        hasher.update(len(field).to_bytes(8, "big"))
        hasher.update(field)
    return _PREFIX + hasher.hexdigest()


def _image_fields(image: "Image.Image") -> tuple[bytes, ...]:
    try:
        image = image.copy()
        image.load()
    except OSError as error:
        raise InputValueError("the image is truncated or damaged") from error
    palette = image.palette
    transparency = image.info.get("transparency")
    if transparency is None:
        encoded = b"none"
    elif isinstance(transparency, bytes):
        encoded = b"bytes:" + transparency
    else:
        encoded = f"{type(transparency).__name__}:{transparency!r}".encode()
    return (
        b"pil",
        image.mode.encode(),
        json.dumps(image.size).encode(),
        palette.mode.encode() if palette else b"",
        palette.tobytes() if palette else b"",
        encoded,
        image.tobytes(),
    )


def _as_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _canonical(value: Any) -> Any:  # noqa: PLR0912  (a case for each type)
    """Return `value` with the type of each part, to keep 1, 1.0, True and "1" apart.

    The order of the cases is the engine's: a value may match several types.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        values = dataclasses.astuple(value)
        fields = [[name, _canonical(part)] for name, part in zip(names, values, strict=True)]
        return {"type": "dataclass", "class": _class_name(value), "fields": fields}
    match value:
        case Enum():
            return {"type": "enum", "class": _class_name(value), "value": _canonical(value.value)}
        case Path():
            return {"type": "path", "value": str(value)}
        case None:
            return {"type": "none"}
        case bool():
            return {"type": "bool", "value": value}
        case int():
            return {"type": "int", "value": _digits(value)}
        case float():  # numpy's float64 too
            return {"type": "float64", "bits": struct.pack("!d", value).hex()}
        case str():
            return {"type": "str", "value": value}
        case bytes() | bytearray() | memoryview():
            return {"type": "bytes", "value": bytes(value).hex()}
        case np.generic() if value.dtype.char in "gG":
            raise InputTypeError("a long double has padding bytes with random content: convert it")
        case np.generic():
            _check_array(np.asarray(value))
            return {
                "type": "numpy_scalar",
                "dtype": value.dtype.str,
                "value": value.tobytes().hex(),
            }
        case np.ndarray():
            _check_array(value)
            array = np.ascontiguousarray(value)
            return _tensor_identity("numpy_array", array.dtype.str, array.shape, array.tobytes())
        case Mapping():
            pairs = [[_canonical(key), _canonical(item)] for key, item in value.items()]
            return {"type": "mapping", "items": sorted(pairs, key=lambda pair: _as_json(pair[0]))}
        case list():
            return {"type": "list", "items": list(map(_canonical, value))}
        case tuple():
            return {"type": "tuple", "items": list(map(_canonical, value))}
        case set() | frozenset():
            kind = "frozenset" if isinstance(value, frozenset) else "set"
            return {"type": kind, "items": sorted(map(_canonical, value), key=_as_json)}
    if is_tensor(value):
        return _tensor_identity("torch_tensor", str(value.dtype), value.shape, _tensor_bytes(value))
    torch_dtype = getattr(sys.modules.get("torch"), "dtype", None)
    if torch_dtype is not None and isinstance(value, torch_dtype):
        return {"type": "torch_dtype", "value": str(value)}
    raise InputTypeError(f"SGLang cannot put a {_class_name(value)} into an artifact's key")


def _digits(number: int) -> str:
    try:
        return str(int(number))
    except ValueError:  # Python refuses to convert longer numbers (sys.set_int_max_str_digits)
        raise InputValueError("a number must have at most 4300 digits") from None


def _tensor_identity(kind: str, dtype: str, shape: Any, data: bytes | memoryview) -> dict[str, Any]:
    digest = _PREFIX + hashlib.sha256(data).hexdigest()
    return {"type": kind, "dtype": dtype, "shape": list(shape), "digest": digest}


def _class_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
