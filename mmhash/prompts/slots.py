"""The media of a request and the places of their hashes, in a copy that can be annotated.

The rules are those of `/annotate`: a caller's own hashes are removed, and a part that an engine
could read in two ways gets no hash. A plan refuses such a part, because the engine would name its
blocks by a hash that only it computes.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from mmhash.engines.engine import ChatFormat, Engine, MediaField, NativeFormat
from mmhash.engines.media_text import is_clear, is_clear_format
from mmhash.errors import InputValueError
from mmhash.prompts.families.family import Modality
from mmhash.prompts.media import MAX_ITEMS, MediaSource

_MAX_NESTING = 8


class Slot(NamedTuple):
    """An item of a request, and the member or entry that is to hold its hash, if there is one."""

    source: MediaSource
    container: Any
    name: str | int

    def fill(self, value: str) -> None:
        """Put the hash in its place."""
        if self.container is not None:
            self.container[self.name] = value


class OpenedRequest(NamedTuple):
    """A copy of a request without its callers' hashes, and its items."""

    body: dict[str, Any]
    slots: list[Slot]
    parts: dict[int, Modality]
    """The modality of each content part that is an item, by the part's identity."""


def open_request(request: Mapping[str, Any], engine: Engine, release: str) -> OpenedRequest:
    """Return a copy of a request that can be annotated, and its items in their order."""
    callers = engine.caller_request_members
    body = {name: value for name, value in request.items() if name not in callers}
    formats = engine.annotate
    if "messages" in body:
        chat = formats.chat(release) if formats and formats.chat else None
        opened = _open_chat(body, chat)
    else:
        native = formats.native(release) if formats and formats.native else None
        opened = _open_native(body, engine, native)
    if len(opened.slots) > MAX_ITEMS:
        raise InputValueError(f"a request has at most {MAX_ITEMS} items")
    return opened


def _open_chat(body: dict[str, Any], chat: ChatFormat | None) -> OpenedRequest:
    messages = body["messages"]
    if not isinstance(messages, list) or not messages:
        raise InputValueError("messages is a list of at least one message")
    copies: list[dict[str, Any]] = []
    slots: list[Slot] = []
    parts: dict[int, Modality] = {}
    for message in messages:
        if not isinstance(message, dict):
            raise InputValueError("each of the messages is an object: batches are planned singly")
        copied = dict(message)
        copies.append(copied)
        if not isinstance(content := message.get("content"), list):
            continue
        copied["content"] = [dict(part) if isinstance(part, dict) else part for part in content]
        for part in copied["content"]:
            if isinstance(part, dict) and (slot := _open_part(part, chat)) is not None:
                slots.append(slot)
                parts[id(part)] = slot.source.modality
    body["messages"] = copies
    return OpenedRequest(body, slots, parts)


def _open_part(part: dict[str, Any], chat: ChatFormat | None) -> Slot | None:
    """Remove the caller's hash from a part, and return its slot if it holds media."""
    if not isinstance(part.get("type"), str | None):
        raise InputValueError("the type of a content part is a text")
    if chat is None:
        return None
    if not chat.in_media:
        part.pop(chat.hash_name, None)
    for field in chat.media:
        media = part.get(field.name)
        if isinstance(media, dict):
            part[field.name] = media = dict(media)
            if chat.in_media:
                media.pop(chat.hash_name, None)
    present = [field for field in chat.media if field.name in part]
    if not present:
        return None
    if chat.exclusive and (len(present) > 1 or not chat.exclusive.isdisjoint(part)):
        raise InputValueError("a content part has two kinds of media: the engine may read either")
    return _slot(part, present[0], chat)


def _slot(part: dict[str, Any], field: MediaField, chat: ChatFormat) -> Slot:
    media = part[field.name]
    text = media.get(field.text) if isinstance(media, dict) else media
    if part.get("type") not in field.types or not isinstance(text, str) or not text:
        raise InputValueError(f"a content part with {field.name} is not of that type")
    if not isinstance(media, dict) and not field.allows_text:
        raise InputValueError(f"{field.name} of a content part is an object")
    if field.text == "data" and not is_clear_format(media.get("format", "")):
        raise InputValueError("the format of an audio clip is a name such as wav")
    _check_clear(text)
    source = MediaSource(field.modality, text)
    if not field.takes_hash:
        return Slot(source, None, "")
    return Slot(source, media if chat.in_media else part, chat.hash_name)


def _check_clear(text: str) -> None:
    if not is_clear(text):
        raise InputValueError("a data: URL of a request is base64 without escapes")


def _open_native(
    body: dict[str, Any], engine: Engine, native: NativeFormat | None
) -> OpenedRequest:
    for name in engine.media_members:
        if name in body:
            body[name] = _without(engine.caller_media_members, body[name])
        if body.get(name) and (native is None or name != native.media):
            raise InputValueError(f"no plan for a request with {name} for this release")
    if native is None or not (media := body.get(native.media)):
        return OpenedRequest(body, [], {})
    entries = [media] if isinstance(media, str) else media
    if isinstance(entries, list) and len(entries) == 1 and isinstance(entries[0], list):
        entries = entries[0]
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise InputValueError(f"{native.media} is a text or a list of texts, for one prompt")
    for entry in entries:
        _check_clear(entry)
    hashes: list[Any] = [None] * len(entries)
    # The engine takes the hashes in the same lists as the media.
    is_nested = isinstance(media, list) and isinstance(media[0], list)
    body[native.hashes] = [hashes] if is_nested else hashes
    slots = [Slot(MediaSource("image", text), hashes, index) for index, text in enumerate(entries)]
    return OpenedRequest(body, slots, {})


def _without(members: frozenset[str], value: Any, depth: int = 0) -> Any:
    if depth > _MAX_NESTING:
        raise InputValueError(f"media has at most {_MAX_NESTING} levels of lists")
    if isinstance(value, list):
        return [_without(members, one, depth + 1) for one in value]
    if isinstance(value, dict):
        return {name: one for name, one in value.items() if name not in members}
    return value
