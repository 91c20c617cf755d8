"""vLLM: names videos by the keys of their files where the caller gives no uuid.

vLLM itself names an image by its file, so a gateway can compute the name. For a video, vLLM hashes
the sampled frames. An item gets its identifier in `ProcessorInputs.get_mm_hashes`, on every
route and in an engine embedded in Python. An identifier set here counts like a caller's uuid: vLLM
hashes it again with a request's processing options.
"""

import os
import sys
from functools import wraps
from importlib import import_module
from typing import Any

import mmhash
from mmhash.plugin.attempt import Attempt, logger
from mmhash.plugin.tags import Tags


def register(features: frozenset[str]) -> None:
    """Wrap the method that names items; vLLM hashes no features in its scheduler."""
    if not features & {"keys", "guard"}:
        return
    if option := _unhooked():
        if "guard" in features:
            raise SystemExit(
                f"MMHASH_PLUGIN=guard has no effect with {option}: that server names items itself. "
                "Omit one of them."
            )
        logger.warning("mmhash is off: with %s vLLM runs no hook for requests", option)
        return
    from vllm.multimodal.processing.inputs import ProcessorInputs  # noqa: PLC0415

    original = ProcessorInputs.get_mm_hashes
    attempt, tags = Attempt(), Tags("vllm")

    @wraps(original)
    def get_mm_hashes(inputs: Any, *arguments: Any, **named: Any) -> Any:
        if "guard" in features:
            inputs.mm_uuid_items = verified(inputs.mm_uuid_items, tags)
        if "keys" in features:
            attempt.run(name_videos, inputs)
        return original(inputs, *arguments, **named)

    if not hasattr(original, "__wrapped__"):
        ProcessorInputs.get_mm_hashes = get_mm_hashes
    if "guard" in features:
        _close_token_route()


def _unhooked() -> str | None:
    """Return the option that selects a server that does not call `get_mm_hashes`, or None."""
    if os.environ.get("VLLM_USE_RUST_FRONTEND", "0") not in {"", "0"}:
        return "VLLM_USE_RUST_FRONTEND"
    is_grpc = "--grpc" in sys.argv or "vllm.entrypoints.launchers.grpc_server" in sys.modules
    return "--grpc" if is_grpc else None


def verified(uuids: Any, tags: Tags) -> dict[str, list[str | None]]:
    """Replace each uuid that is a valid tag with its key, and every other uuid with None."""
    return {
        modality: [None if key is None else key.hex() for key in map(tags.key_of, given)]
        for modality, given in (uuids or {}).items()
    }


def name_videos(inputs: Any) -> None:
    """Give a uuid to each video that has none, if vLLM has kept the video's file."""
    items = inputs.mm_data_items.get("video")
    if not items:
        return
    files = [_file_of(item) for item in items.get_all_items_for_hash()]
    uuids = dict(inputs.mm_uuid_items or {})
    given = uuids.get("video") or [None] * len(files)
    uuids["video"] = [
        mmhash.key(file).hex() if uuid is None and file is not None else uuid
        for uuid, file in zip(given, files, strict=True)
    ]
    inputs.mm_uuid_items = uuids


def _file_of(video: Any) -> bytes | None:
    frames = video[0] if isinstance(video, tuple) else video  # some models need metadata, too
    return getattr(frames, "original_bytes", None)


def _close_token_route() -> None:
    """Refuse features on /inference/v1/generate: their hashes would reach the cache unchecked."""
    package = "vllm.entrypoints.scale_out.token_in_token_out"
    try:
        import_module(f"{package}.mm_features")
    except ImportError:  # this release has no such route
        return
    # `serving` has its own reference to the function.
    for module in ("mm_features", "serving"):
        if found := sys.modules.get(f"{package}.{module}"):
            found.mm_kwargs_from_features = _refuse_features  # type: ignore[attr-defined]


def _refuse_features(_features: Any) -> Any:
    raise ValueError("mmhash: features of a request would bring their own hashes")
