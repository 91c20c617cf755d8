"""SGLang's native /generate request: an entry of `mm_hashes` for each image of `image_data`.

As read by SGLang 0.5.23 (managers/io_struct.py, managers/tokenizer_manager.py).
"""

import re
from typing import Any

from mmhash_service.annotate.places import Place, image_of_sglang
from mmhash_service.annotate.rawjson import Object, open_list, open_text
from mmhash_service.problems import Problem

# A batch has a list more around its prompts than a single request has.
_BATCH = {
    "text": re.compile(rb"\["),
    "input_ids": re.compile(rb"\[\s*\["),
    "input_embeds": re.compile(rb"\[\s*\[\s*\["),
}

_NOTHING = re.compile(rb"null|\[\s*\]")


def find_in_generate(body: Object) -> list[Place]:
    """Lay `mm_hashes` out as the engine wants it beside this `image_data`, and say what goes where.

    The engine takes a hash for each image or none at all. So none goes in beside videos or audio,
    which it counts too, or if an entry is no text, but features that were computed already.
    """
    if body.keys().isdisjoint(_BATCH):
        raise Problem("invalid-json")
    if _has(body, "video_data") or _has(body, "audio_data") or not _has(body, "image_data"):
        return []
    if (text := open_text(body["image_data"])) is not None:  # one image, for each prompt
        hashes: list[Any] = [None] * _count_prompts(body)
        body["mm_hashes"] = hashes
        return [Place(image_of_sglang(text), hashes, at) for at in range(len(hashes))]
    entries = open_list(body["image_data"]) or []
    lists = [found for entry in entries if (found := open_list(entry)) is not None]
    hashes, holders = (lists, lists) if len(lists) == len(entries) else (entries, [entries])
    places = []
    for holder in holders:
        for at, entry in enumerate(holder):
            if (text := open_text(entry)) is None:
                return []
            places.append(Place(image_of_sglang(text), holder, at))
    if places:
        body["mm_hashes"] = hashes
    return places


def _count_prompts(body: Object) -> int:
    for name, batch in _BATCH.items():
        if _has(body, name):
            return len(open_list(body[name]) or ()) if batch.match(body[name]) else 1
    return 1  # the prompt of an earlier request, which the engine has


def _has(body: Object, name: str) -> bool:
    return name in body and not _NOTHING.fullmatch(body[name])
