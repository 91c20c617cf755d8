"""SGLang's native /generate request: an entry of `mm_hashes` for each image of `image_data`.

As read by SGLang 0.5.23 (managers/io_struct.py, managers/tokenizer_manager.py).
"""

import re
from typing import Any

from mmhash_service.annotate.options import sglang_options
from mmhash_service.annotate.raw_json import Object, close, open_list, open_object, open_text
from mmhash_service.annotate.slots import HashSlot, image_of_sglang
from mmhash_service.api.problems import Problem
from mmhash_service.request_fields import FEATURE_IDENTITIES, MEDIA

# What an object among the media may say of its hash.
_CLAIMS = frozenset({"content_hash", *FEATURE_IDENTITIES})

# The engine takes lists of lists; deeper ones it refuses, and so do we.
_MAX_NESTING = 8

# A batch has a list more around its prompts than a single request has.
_BATCH = {
    "text": re.compile(rb"\["),
    "input_ids": re.compile(rb"\[\s*\["),
    "input_embeds": re.compile(rb"\[\s*\[\s*\["),
}

_NOTHING = re.compile(rb"null|\[\s*\]")


def find_in_generate(body: Object) -> list[HashSlot]:
    """Lay `mm_hashes` out as the engine wants it beside this `image_data`, and say what goes where.

    The engine takes a hash for each image or none at all. So none goes in beside videos or audio,
    which it counts too, or if an entry is no text, but features that were computed already.
    """
    if body.keys().isdisjoint(_BATCH):
        raise Problem("invalid-json")
    for name in MEDIA:
        if name in body:
            body[name] = _without_claims(body[name])
    options = sglang_options(body)
    if _has(body, "video_data") or _has(body, "audio_data") or not _has(body, "image_data"):
        return []
    if (text := open_text(body["image_data"])) is not None:  # one image, for each prompt
        hashes: list[Any] = [None] * _count_prompts(body)
        body["mm_hashes"] = hashes
        image = image_of_sglang(text)
        return [HashSlot(image, hashes, at, options) for at in range(len(hashes))]
    entries = open_list(body["image_data"]) or []
    lists = [found for entry in entries if (found := open_list(entry)) is not None]
    hashes, containers = (lists, lists) if len(lists) == len(entries) else (entries, [entries])
    places = []
    for container in containers:
        for at, entry in enumerate(container):
            if (text := open_text(entry)) is None:
                return []
            places.append(HashSlot(image_of_sglang(text), container, at, options))
    if places:
        body["mm_hashes"] = hashes
    return places


def _without_claims(raw: Any, depth: int = 0) -> Any:
    """Media as they came, but for what their objects say of their hashes."""
    if depth > _MAX_NESTING:
        raise Problem("invalid-json")
    if (entries := open_list(raw)) is not None:
        cleaned = [_without_claims(entry, depth + 1) for entry in entries]
        is_same = all(one is entry for one, entry in zip(cleaned, entries, strict=True))
        return raw if is_same else close(cleaned)
    members = open_object(raw)
    if members is None or _CLAIMS.isdisjoint(members):
        return raw
    return close({name: one for name, one in members.items() if name not in _CLAIMS})


def _count_prompts(body: Object) -> int:
    for name, batch in _BATCH.items():
        if _has(body, name):
            return len(open_list(body[name]) or ()) if batch.match(body[name]) else 1
    return 1  # the prompt of an earlier request, which the engine has


def _has(body: Object, name: str) -> bool:
    return name in body and not _NOTHING.fullmatch(body[name])
