"""The guard's table has every field of a running engine's routes that can hold a hash."""

import re
from collections.abc import Iterator
from typing import Any

from mmhash.engines.caller_fields import PEER_HEADERS
from mmhash.engines.registry import ENGINES
from tests.live.engines import Engine

# Members whose names suggest that they identify content, name a peer or carry engines' state.
_BEARS_A_HASH = re.compile(
    r"hash|uuid|digest|fingerprint|identit|pad_value|transfer|bootstrap|disagg|salt|extra_key|"
    r"encoder_url|embeds|kv_|_ipc|lora_(id|path)|prefill|decode_tp"
)

# Members that match, but name nothing in another caller's cache.
_HARMLESS = {
    **dict.fromkeys(("cache_salt", "extra_key", "lora_path"), "choose a namespace"),
    **dict.fromkeys(
        ("input_embeds", "prompt_embeds", "image_embeds", "audio_embeds", "video_embeds"),
        "known by their own bytes",
    ),
    "fingerprint": "the client's copy of what a tool answered: not read",
}


def test_routes_have_known_fields(engine: Engine) -> None:
    """Every field that can hold a hash is in the guard's table."""
    known = {field.name for one in ENGINES for field in one.caller_fields} | PEER_HEADERS
    document = engine.client.get("/openapi.json").json()
    unknown = {
        f"{path}: {name}"
        for path, name in _fields(document)
        if _BEARS_A_HASH.search(name) and name not in known and name not in _HARMLESS
    }
    assert len(document["paths"]) > 10
    assert not unknown, sorted(unknown)


def _fields(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Return each route with each member that its request may have, at any depth."""
    for path, methods in document["paths"].items():
        for method in methods.values():
            for parameter in method.get("parameters", ()):
                yield path, parameter["name"].lower()
            seen: set[str] = set()
            for name in _names(method.get("requestBody"), document, seen):
                yield path, name


def _names(schema: Any, document: dict[str, Any], seen: set[str]) -> Iterator[str]:
    if isinstance(schema, list):
        for one in schema:
            yield from _names(one, document, seen)
    elif isinstance(schema, dict):
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference not in seen:
            seen.add(reference)
            yield from _names(_resolved(document, reference), document, seen)
        properties = schema.get("properties")
        if isinstance(properties, dict):
            yield from properties
        for one in schema.values():
            yield from _names(one, document, seen)


def _resolved(document: dict[str, Any], reference: str) -> Any:
    found: Any = document
    for step in reference.removeprefix("#/").split("/"):
        found = found[step]
    return found
