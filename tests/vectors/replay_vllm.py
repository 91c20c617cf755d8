"""vLLM's vectors, answered by mmhash."""

import uuid
from collections.abc import Callable
from typing import Any

from PIL import ExifTags, Image

from mmhash.engines import vllm
from tests.vectors.engine_cases import Case, build, payload


def mm_hash(case: Case) -> dict[str, Any]:
    given = case.input
    options = {"version": case.version, "algorithm": given["algorithm"]}
    if given["op"] == "hash_kwargs":
        kwargs = _build(given["kwargs"])
        answer = {"digest_hex": vllm.mm_hash(**options, **kwargs)}
        for image in kwargs.values():
            if isinstance(image, Image.Image) and "palette_hex" in case.expect:
                answer["palette_hex"] = image.palette.palette.hex()
                answer["palette_mode"] = image.palette.mode
                answer["palette_rawmode"] = image.palette.rawmode
        return answer
    assert given["op"] == "get_mm_hashes", given["op"]
    hashes = {
        modality: vllm.identifiers(
            modality,
            [_build(item) for item in items],
            model_id=given["model_id"],
            uuids=(given["uuids"] or {}).get(modality),
            processor_kwargs=_build(given["hf_processor_mm_kwargs"]),
            media_io_kwargs=_build(given["media_io_kwargs"]) if "media_io_kwargs" in given else {},
            **options,
        )
        for modality, items in given["items"].items()
    }
    return {"mm_hashes": hashes}


def block_hash(case: Case) -> dict[str, Any]:
    given = case.input
    hashing = {
        "version": case.version,
        "block_algorithm": given["algorithm"],
        "seed": given["pythonhashseed"],
    }
    if given["op"] == "none_hash":
        return {"none_hash": vllm.none_hash(**hashing).hex()}
    if given["op"] == "hash_block_tokens":
        parent = bytes.fromhex(given["parent_hex"] or "")
        extra = _unlisted(given["extra_keys"])
        key = vllm.block_key(given["tokens"], parent=parent, extra=extra, **hashing)
        return {"block_hash": key.hex()}
    assert given["op"] == "chain", given["op"]
    lora = given["lora"]
    request = {
        "items": [vllm.Span(**feature) for feature in given["mm_features"]],
        "cache_salt": given["cache_salt"],
        "lora": lora and vllm.Lora(**lora),
        "lookahead": given.get("num_hash_lookahead_tokens", 0),
        "hashed_after": given.get("hashed_after_tokens", ()),
    }
    prompt = given["tokens"], given["block_size"]
    keys = vllm.block_keys(*prompt, **request, **hashing)
    extras = vllm.extra_keys(*prompt, **request, version=case.version)
    answer = {
        "none_hash": vllm.none_hash(**hashing).hex(),
        "block_hashes": [key.hex() for key in keys],
        "extra_keys": _listed(extras),
        "event_int64": [vllm.event_id(key) for key in keys],
    }
    if "event_extra_keys" in case.expect:
        published = [vllm.event_extra_keys(extra, version=case.version) for extra in extras]
        answer["event_extra_keys"] = _listed(published)
    return answer


def _build(what: Any) -> Any:
    """Build an input as `build` does, or vLLM's wrapper, or containers of it."""
    match what["kind"]:
        case "media_with_bytes":
            io_config = what.get("io_config")
            return vllm.EncodedMedia(
                _build(what["media"]),
                payload(what["original_bytes"]),
                io_config and _build(io_config),
            )
        case "list":
            return [_build(item) for item in what["items"]]
        case "tuple":
            return tuple(_build(item) for item in what["items"])
        case "dict":
            return {name: _build(item) for name, item in what["items"]}
        case "image" if "exif_image_id" in what:
            image = build(what)
            image.getexif()[ExifTags.Base.ImageID] = uuid.UUID(what["exif_image_id"])
            return image
        case _:
            return build(what)


def _listed(value: Any) -> Any:
    """Tuples as JSON has them."""
    if isinstance(value, (list, tuple)):
        return [_listed(item) for item in value]
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def _unlisted(value: Any) -> Any:
    """The way back."""
    if isinstance(value, list):
        return tuple(_unlisted(item) for item in value)
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value


FILES: dict[str, Callable[[Case], object]] = {
    "vllm_mm_hash": mm_hash,
    "vllm_block_hash": block_hash,
}
