"""Native requests: an entry in a list of hashes for each image in a list of media."""

import re
from collections.abc import Collection
from typing import Any

from mmhash.engines.engine import Engine, NativeFormat
from mmhash.engines.media_text import is_clear
from mmhash_service.annotate.raw_json import Object, close, open_list, open_object, open_text
from mmhash_service.annotate.slots import HashSlot, image_of
from mmhash_service.api.problems import Problem

# The engine takes lists of lists, and refuses deeper ones.
_MAX_NESTING = 8

_NOTHING = re.compile(rb"null|\[\s*\]")


def find_in_native(body: Object, native: NativeFormat, options: str) -> list[HashSlot]:
    """Lay out the list of hashes as the engine wants it beside this media, and return its slots.

    The engine takes a hash for each item or none at all. So there are none beside media that it
    counts too, or if an entry is not a text, but features that were computed already, or a
    text that it decodes in another way.
    """
    if any(_has(body, name) for name in native.uncounted) or not _has(body, native.media):
        return []
    text = open_text(body[native.media])
    if text is not None:
        hashes, slots = _one_image(text, _count_prompts(body, native), options)
    else:
        hashes, slots = _lists_of_images(open_list(body[native.media]) or [], options)
    if slots:
        body[native.hashes] = hashes
    return slots


def is_native(body: Object, native: NativeFormat) -> bool:
    """Return True if the body has a prompt of such a request."""
    return not body.keys().isdisjoint(native.prompts)


def remove_callers_hashes(body: Object, engine: Engine) -> None:
    """Remove the members by which objects among the media identify their content."""
    for name in engine.media_members:
        if name in body:
            body[name] = _without(engine.caller_media_members, body[name])


def _one_image(text: str, prompts: int, options: str) -> tuple[list[Any], list[HashSlot]]:
    """Return the hashes and slots of one image that belongs to each prompt."""
    if not is_clear(text):
        return [], []
    hashes: list[Any] = [None] * prompts
    media = image_of(text)
    return hashes, [HashSlot(media, hashes, index, options) for index in range(prompts)]


def _lists_of_images(entries: list[Any], options: str) -> tuple[list[Any], list[HashSlot]]:
    """Return the hashes and slots of images in one list, or in a list for each prompt."""
    lists = [inner for entry in entries if (inner := open_list(entry)) is not None]
    is_nested = len(lists) == len(entries)
    slots = []
    for container in lists if is_nested else [entries]:
        for index, entry in enumerate(container):
            text = open_text(entry)
            if text is None or not is_clear(text):
                return [], []
            slots.append(HashSlot(image_of(text), container, index, options))
    return lists if is_nested else entries, slots


def _without(names: Collection[str], raw: Any, depth: int = 0) -> Any:
    """Return media without these members of its objects; as they came if there are none."""
    if depth > _MAX_NESTING:
        raise Problem("invalid-json")
    if (entries := open_list(raw)) is not None:
        cleaned = [_without(names, entry, depth + 1) for entry in entries]
        is_same = all(one is entry for one, entry in zip(cleaned, entries, strict=True))
        return raw if is_same else close(cleaned)
    members = open_object(raw)
    if members is None or members.keys().isdisjoint(names):
        return raw
    return close({name: value for name, value in members.items() if name not in names})


def _count_prompts(body: Object, native: NativeFormat) -> int:
    for name, depth in native.prompts.items():
        if _has(body, name):
            is_batch = re.match(rb"\s*".join([rb"\["] * depth), body[name])
            return len(open_list(body[name]) or ()) if is_batch else 1
    return 1  # the prompt of an earlier request, which the engine has


def _has(body: Object, name: str) -> bool:
    return name in body and not _NOTHING.fullmatch(body[name])
