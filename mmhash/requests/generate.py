"""Native requests (SGLang's `/generate`): a list of hashes beside a list of media."""

from collections.abc import Collection
from typing import Any

from mmhash.engines.engine import Engine, NativeFormat
from mmhash.json_pointer import Path
from mmhash.requests.document import Document
from mmhash.requests.engine_request import EngineRequest, Place
from mmhash.requests.media_source import has_scheme, is_clear
from mmhash.requests.raw_json import RequestError

# The engine accepts lists of lists, and refuses deeper nesting.
_MAX_NESTING = 8


def read(document: Document, engine: Engine, release: str) -> EngineRequest:
    """Return a native request as an engine reads it.

    The engine takes a hash for every item, or none. A request therefore gets no hashes if it has
    other media, precomputed features, or media that the engine may decode differently.
    """
    formats = engine.annotate
    if formats is None or formats.native is None:
        raise RequestError(f"has {_names(document)}, and none of messages, prompt, input")
    native = formats.native(release)
    request = EngineRequest(document, engine, release, native)
    members = document.members
    for name in engine.media_members:
        _remove_hashes(request, engine.caller_media_members, members.get(name), (name,))
        if members.get(name) and (native is None or name != native.media):
            request.note_unclear(f"no plan for a request with {name} for this release")
    if native is None:
        return request
    if members.keys().isdisjoint(native.prompts):
        expected = ", ".join(("messages", "prompt", "input", *native.prompts))
        raise RequestError(f"has {_names(document)}, and none of {expected}")
    media = members.get(native.media)
    if media and not any(members.get(name) for name in native.uncounted):
        _read_media(request, native, media)
    return request


def _names(document: Document) -> str:
    """Return the names of a request's members, for an error."""
    names = ", ".join(repr(name[:40]) for name in list(document.members)[:5])
    return names or "no members"


def _remove_hashes(request: EngineRequest, names: Collection[str], media: Any, path: Path) -> None:
    """Remove the members by which a caller's media objects identify their content."""
    if len(path) > _MAX_NESTING + 1:
        raise RequestError(f"has media in more than {_MAX_NESTING} levels of lists", path[0])
    if isinstance(media, list):
        for number, one in enumerate(media):
            if isinstance(one, (list, dict)):
                _remove_hashes(request, names, one, (*path, number))
    else:
        for name in names:
            request.remove(media, path, name)


def _read_media(request: EngineRequest, native: NativeFormat, media: Any) -> None:
    """Add a place for each image, in nested lists of the same shape."""
    prompts = _count_prompts(request.document, native)
    is_nested = isinstance(media, list) and all(isinstance(one, list) for one in media)
    groups = media if is_nested else [media if isinstance(media, list) else [media] * prompts]
    if len(groups) > 1 or (isinstance(media, str) and prompts > 1):
        request.note_unclear(f"{native.media} must be a text or a list of texts, for one prompt")
    hashes: list[list[None]] = []
    places = []
    for number, group in enumerate(groups):
        path = (native.hashes, number) if is_nested else (native.hashes,)
        for index, text in enumerate(group):
            if not isinstance(text, str) or not is_clear(text):
                reason = "the media must be texts: URLs, or base64 without escapes"
                request.note_unclear(reason, (native.media, *path[1:], index))
                return
            place = (native.media, *path[1:], index)
            source = request.document.source("image", text, place, is_url=has_scheme(text))
            places.append(Place(source, path, index))
        hashes.append([None] * len(group))
    if places:
        request.places += places
        request.hashes = hashes if is_nested else hashes[0]


def _count_prompts(document: Document, native: NativeFormat) -> int:
    for name, depth in native.prompts.items():
        prompt = document.members.get(name)
        if prompt is None or prompt == []:
            continue
        inner = prompt
        for _ in range(depth - 1):
            inner = inner[0] if isinstance(inner, list) and inner else None
        return len(prompt) if isinstance(inner, list) else 1
    return 1  # the engine still has the prompt of an earlier request
