"""vLLM: names media by the keys of their files where the caller gives no uuid.

An item gets its identifier in `ProcessorInputs.get_mm_hashes`, on every route and in an engine
embedded in Python. An identifier set here counts like a caller's uuid: vLLM hashes it again with a
request's processing options.
"""

import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

import mmhash
from mmhash.plugin.attempt import Attempt
from mmhash.plugin.tags import Tags


def register(features: frozenset[str]) -> None:
    """Wrap the methods of these features."""
    if not features & {"keys", "guard"}:  # vLLM hashes no features in its scheduler
        return
    from vllm.multimodal.processing.inputs import ProcessorInputs  # noqa: PLC0415

    plugin = Plugin(features)
    if not hasattr(ProcessorInputs.get_mm_hashes, "__wrapped__"):
        ProcessorInputs.get_mm_hashes = plugin.wrap_get_mm_hashes(ProcessorInputs.get_mm_hashes)
    if "guard" in features:
        _close_token_route()


class Plugin:
    """What is switched on."""

    def __init__(self, features: frozenset[str]) -> None:
        self._features = features
        self._attempt = Attempt()
        self._tags = Tags("vllm")

    def wrap_get_mm_hashes(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the engine's method, which first replaces the uuids of its inputs."""

        @wraps(original)
        def get_mm_hashes(inputs: Any, *arguments: Any, **named: Any) -> Any:
            if "guard" in self._features:
                inputs.mm_uuid_items = self._verified(inputs.mm_uuid_items)
            if "keys" in self._features:
                self._attempt.run(name_media, inputs)
            return original(inputs, *arguments, **named)

        return get_mm_hashes

    def _verified(self, uuids: Any) -> dict[str, list[str | None]]:
        """Return the uuids that are valid tags, each replaced by its key."""
        return {
            modality: [None if key is None else key.hex() for key in map(self._tags.key_of, given)]
            for modality, given in (uuids or {}).items()
        }


def name_media(inputs: Any) -> None:
    """Set the uuid of each item that has none and whose file vLLM has kept."""
    uuids: dict[str, list[str | None]] = dict(inputs.mm_uuid_items or {})
    for modality, items in inputs.mm_data_items.items():
        contents = [
            getattr(item, "original_bytes", None) for item in items.get_all_items_for_hash()
        ]
        given = uuids.get(modality) or [None] * len(contents)
        uuids[modality] = [
            uuid if uuid is not None or content is None else mmhash.key(content).hex()
            for uuid, content in zip(given, contents, strict=True)
        ]
    inputs.mm_uuid_items = uuids


def _close_token_route() -> None:
    """Refuse features on /inference/v1/generate: their hashes would reach the cache unchecked."""
    package = "vllm.entrypoints.scale_out.token_in_token_out"
    try:
        import_module(f"{package}.mm_features")
    except ImportError:  # this release has no such route
        return
    # the second module imported the function under that name
    for module in ("mm_features", "serving"):
        if found := sys.modules.get(f"{package}.{module}"):
            found.mm_kwargs_from_features = _refuse_features  # type: ignore[attr-defined]


def _refuse_features(_features: Any) -> Any:
    raise ValueError("mmhash: features of a request would name their own hashes")
