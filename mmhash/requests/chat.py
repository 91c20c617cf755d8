"""Chats (OpenAI): media are parts of messages, and a part has a member for its hash."""

from typing import Any

from mmhash.engines.engine import ChatFormat, Engine, MediaField, NoFieldError
from mmhash.json_pointer import Path
from mmhash.requests.document import Document
from mmhash.requests.engine_request import EngineRequest, Place, UnreadableUrlError
from mmhash.requests.media_source import (
    has_scheme,
    is_clear,
    is_clear_format,
    is_data_url,
)
from mmhash.requests.raw_json import RequestError, kind_of

_NO_CONTENT = "a data: URL has its content after a comma: send data:image/png;base64,<base64>"
_UNCLEAR = "send data:image/png;base64, and base64 without escapes, or an http(s) URL"


def read(document: Document, engine: Engine, release: str) -> EngineRequest:
    """Return a chat as an engine reads it."""
    formats = engine.annotate
    chat = formats.chat(release) if formats and formats.chat else None
    request = EngineRequest(document, engine, release, chat)
    messages = document.members.get("messages")
    if not isinstance(messages, list):
        raise RequestError(f"is {kind_of(messages)}, not a list of messages", "messages")
    if not messages:
        raise RequestError("is [], not a list of at least one message", "messages")
    for index, message in enumerate(messages):
        if not isinstance(message, list):
            _read_message(request, chat, message, ("messages", index))
            continue
        request.note_unclear("each message must be an object: plan the chats of a batch one by one")
        for number, one in enumerate(message):
            _read_message(request, chat, one, ("messages", index, number))
    return request


def _read_message(
    request: EngineRequest, chat: ChatFormat | None, message: Any, path: Path
) -> None:
    if not isinstance(message, dict):
        raise RequestError(f"is {kind_of(message)}, not an object", *path)
    parts = message.get("content")
    if not isinstance(parts, list):  # a text, or nothing
        return
    for number, part in enumerate(parts):
        if isinstance(part, dict):
            read_part(request, chat, part, (*path, "content", number))


def read_part(
    request: EngineRequest, chat: ChatFormat | None, part: dict[str, Any], path: Path
) -> None:
    """Remove the caller's hash from a part, and add the media that it holds."""
    if _has_source(part):
        raise NoFieldError("media in the form of the Messages API cannot carry a hash")
    type_ = part.get("type")
    if not isinstance(type_, str | None):
        request.note_unclear("the type of a content part must be a text")
    if chat is None:
        return
    if not chat.in_media:
        request.remove(part, path, chat.hash_name)
    present = [field for field in chat.media if field.name in part]
    if chat.in_media:
        for field in present:
            request.remove(part[field.name], (*path, field.name), chat.hash_name)
    if not present:
        return
    if chat.exclusive and (len(present) > 1 or not chat.exclusive.isdisjoint(part)):
        request.note_unclear(
            "a content part has two kinds of media, and the engine may read either"
        )
        return
    field = present[0]
    media = part[field.name]
    is_object = isinstance(media, dict)
    text = media.get(field.text) if is_object else media
    is_of_type = isinstance(type_, str | None) and type_ in field.types
    if not is_of_type or not isinstance(text, str) or not (is_object or field.allows_text):
        text = ""
    if not text:
        request.note_unclear(f"a content part has {field.name}, but another type", path)
        return
    place = (*path, field.name, field.text) if is_object else (*path, field.name)
    if is_data_url(text) and not text.partition(",")[2]:
        request.unclear = request.unclear or UnreadableUrlError(_NO_CONTENT, place)
        return
    if not _is_read_alike(field, media, text):
        request.note_unclear(f"engines may decode it differently: {_UNCLEAR}", place)
        return
    is_url = field.text == "url" and (not chat.takes_base64 or has_scheme(text))
    source = request.document.source(field.modality, text, place, is_url=is_url)
    takes_hash = field.takes_hash and (is_object or not chat.in_media)
    holder = (*path, field.name) if chat.in_media else path
    request.add_part(part, Place(source, holder if takes_hash else None, chat.hash_name))


def _has_source(part: dict[str, Any]) -> bool:
    """Return True if a part, or a part of a tool's result, is media of the Messages API."""
    if isinstance(part.get("source"), dict):
        return True
    nested = part.get("content")
    return isinstance(nested, list) and any(
        isinstance(one, dict) and isinstance(one.get("source"), dict) for one in nested
    )


def _is_read_alike(field: MediaField, media: Any, text: str) -> bool:
    """Return False if the engine decodes the media differently, and so would get a wrong hash."""
    if field.text == "data":
        return "format" not in media or is_clear_format(media["format"])
    return is_clear(text)
