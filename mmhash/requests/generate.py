"""Native requests (`/generate` of SGLang): a list of hashes beside a list of media."""

import re
from collections.abc import Collection
from typing import Any

from msgspec import Raw

from mmhash.engines.engine import Engine, NativeFormat
from mmhash.requests import raw_json
from mmhash.requests.document import Document
from mmhash.requests.engine_request import EngineRequest, Place
from mmhash.requests.media_text import has_scheme, is_clear
from mmhash.requests.raw_json import RequestError

# The engine takes lists of lists, and refuses deeper ones.
_MAX_NESTING = 8

_NOTHING = re.compile(rb'null|\[\s*\]|""|\{\s*\}|false|0')


def read(document: Document, engine: Engine, release: str) -> EngineRequest:
    """Return a native request as an engine reads it.

    The engine takes a hash for each item or none at all. So there are none beside media that it
    counts too, or if an entry is not a text, but features that were computed already, or a
    text that it decodes in another way.
    """
    formats = engine.annotate
    if formats is None or formats.native is None:
        raise RequestError(f"has no messages, and {engine.title} takes no native requests")
    native = formats.native(release)
    request = EngineRequest(document, engine, release, native)
    body = request.body
    for name in engine.media_members:
        if name in body:
            cleaned = _without(document, engine.caller_media_members, body[name], name)
            if cleaned is not body[name]:
                request.replace(name, cleaned)
            if _has(request, name) and (native is None or name != native.media):
                request.note_unclear(f"no plan for a request with {name} for this release")
    if native is None:
        return request
    if body.keys().isdisjoint(native.prompts):
        raise RequestError("has no messages, and no prompt of a native request")
    if _has(request, native.media) and not any(_has(request, name) for name in native.uncounted):
        _read_media(request, native)
    return request


def _read_media(request: EngineRequest, native: NativeFormat) -> None:
    raw = request.body[native.media]
    text = request.document.open_text(raw)
    if text is not None:
        prompts = _count_prompts(request, native)
        hashes: list[Any] = [None] * prompts
        places = _read_texts(request, [text] * prompts, hashes)
        is_single = prompts == 1
    else:
        entries = request.document.open_list(raw, native.media) or []
        lists = [request.document.open_list(entry) for entry in entries]
        is_nested = bool(lists) and None not in lists
        groups = [one for one in lists if one is not None] if is_nested else [entries]
        hashes, places = [], []
        for group in groups:
            made: list[Any] = [None] * len(group)
            hashes.append(made)
            found = _read_texts(request, list(map(request.document.open_text, group)), made)
            if not found and group:
                places = []
                break
            places += found
        hashes = hashes if is_nested else hashes[0]
        is_single = len(groups) == 1
    if not is_single:
        request.note_unclear(f"{native.media} is a text or a list of texts, for one prompt")
    if places:
        request.places += places
        request.body[native.hashes] = hashes


def _read_texts(request: EngineRequest, texts: list[str | None], hashes: list[Any]) -> list[Place]:
    """Return the place of each image; none if one of the entries is no text, or not a clear one."""
    places = []
    for index, text in enumerate(texts):
        if text is None or not is_clear(text):
            request.note_unclear("the media are texts: URLs, or base64 without escapes")
            return []
        source = request.document.source("image", text, is_url=has_scheme(text))
        places.append(Place(source, hashes, index))
    return places


def _without(document: Document, names: Collection[str], raw: Any, *place: str | int) -> Any:
    """Return media without these members of its objects; as they came if there are none."""
    if len(place) > _MAX_NESTING + 1:
        raise RequestError(f"has media in more than {_MAX_NESTING} levels of lists", place[0])
    if (entries := document.open_list(raw, *place)) is not None:
        cleaned = [
            _without(document, names, entry, *place, number) for number, entry in enumerate(entries)
        ]
        is_same = all(one is entry for one, entry in zip(cleaned, entries, strict=True))
        return raw if is_same else Raw(raw_json.encode(cleaned))
    members = document.open_object(raw, *place)
    if members is None or members.keys().isdisjoint(names):
        return raw
    kept = {name: value for name, value in members.items() if name not in names}
    return Raw(raw_json.encode(kept))


def _count_prompts(request: EngineRequest, native: NativeFormat) -> int:
    for name, depth in native.prompts.items():
        if _has(request, name):
            raw = bytes(request.body[name])
            is_batch = re.match(rb"\s*".join([rb"\["] * depth), raw)
            return len(request.document.open_list(request.body[name]) or ()) if is_batch else 1
    return 1  # the prompt of an earlier request, which the engine has


def _has(request: EngineRequest, name: str) -> bool:
    return name in request.body and not _NOTHING.fullmatch(bytes(request.body[name]))
