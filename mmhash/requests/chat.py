"""Chats (OpenAI): media in the parts of messages, each with a member for its hash."""

from typing import Any

from mmhash.engines.engine import ChatFormat, Engine, MediaField, NoFieldError
from mmhash.requests.document import Document
from mmhash.requests.engine_request import EngineRequest, Place
from mmhash.requests.media_text import has_scheme, is_clear, is_clear_format, is_frames
from mmhash.requests.raw_json import Object, RequestError


def read(document: Document, engine: Engine, release: str) -> EngineRequest:
    """Return a chat as an engine reads it."""
    formats = engine.annotate
    chat = formats.chat(release) if formats and formats.chat else None
    request = EngineRequest(document, engine, release, chat)
    messages = document.open_list(document.body.get("messages"), "messages")
    if messages is None:
        raise RequestError("is not an array", "messages")
    if not messages:
        request.note_unclear("messages is a list of at least one message")
    request.body["messages"] = messages
    for index, raw in enumerate(messages):
        batch = document.open_list(raw, "messages", index)
        if batch is None:
            _read_message(request, chat, messages, index, ("messages", index))
            continue
        request.note_unclear("each of the messages is an object: batches are planned singly")
        messages[index] = batch
        for number in range(len(batch)):
            _read_message(request, chat, batch, number, ("messages", index, number))
    return request


def _read_message(
    request: EngineRequest,
    chat: ChatFormat | None,
    messages: list[Any],
    index: int,
    place: tuple[str | int, ...],
) -> None:
    message = request.document.open_object(messages[index], *place)
    if message is None:
        raise RequestError("is not an object", *place)
    messages[index] = message
    parts = request.document.open_list(message.get("content"), *place, "content")
    if parts is None:  # a text, or nothing
        return
    message["content"] = parts
    for number, raw in enumerate(parts):
        part = request.document.open_object(raw, *place, "content", number)
        if part is not None:
            parts[number] = part
            _read_part(request, chat, part, (*place, "content", number))


def _read_part(
    request: EngineRequest, chat: ChatFormat | None, part: Object, place: tuple[str | int, ...]
) -> None:
    """Remove the caller's hash from a part, and add the media that it holds."""
    document = request.document
    if _has_source(document, part, place):
        raise NoFieldError("media of the Messages API take no hash")
    type_ = document.open_text(part.get("type"))
    is_typed = type_ is not None or _is_null(part.get("type"))
    if not is_typed:
        request.note_unclear("the type of a content part is a text")
    if chat is None:
        return
    if not chat.in_media:
        request.remove(part, chat.hash_name)
    present = [field for field in chat.media if field.name in part]
    for field in present:
        media = document.open_object(part[field.name], *place, field.name)
        if media is not None and chat.in_media:
            part[field.name] = media
            request.remove(media, chat.hash_name)
    if not present:
        return
    is_exclusive = chat.exclusive and (len(present) > 1 or not chat.exclusive.isdisjoint(part))
    if is_exclusive:
        request.note_unclear("a content part has two kinds of media: the engine may read either")
        return
    field = present[0]
    # As opened above, or raw.
    holder = part[field.name]
    if not isinstance(holder, dict):
        holder = document.open_object(holder)
    raw = part[field.name] if holder is None else holder.get(field.text)
    text = document.open_text(raw)
    if (
        not is_typed
        or type_ not in field.types
        or not text
        or (holder is None and not field.allows_text)
    ):
        request.note_unclear(f"a content part with {field.name} is not of that type")
        return
    if not _is_read_alike(document, field, holder or {}, text):
        request.note_unclear("a content part has media that engines decode in several ways")
        return
    is_url = field.text == "url" and (not chat.takes_base64 or has_scheme(text))
    source = document.source(field.modality, text, is_url=is_url)
    container = part[field.name] if chat.in_media else part
    takes_hash = field.takes_hash and isinstance(container, dict)
    # The engine would hash the frames, not the file.
    takes_hash = takes_hash and not (field.modality == "video" and is_frames(text))
    request.add_part(part, Place(source, container if takes_hash else None, chat.hash_name))


def _has_source(document: Document, part: Object, place: tuple[str | int, ...]) -> bool:
    """Return True if a part, or one in a tool's result, is media of the Messages API."""
    if document.open_object(part.get("source"), *place, "source") is not None:
        return True
    inner = (*place, "content")
    for number, raw in enumerate(document.open_list(part.get("content"), *inner) or ()):
        nested = document.open_object(raw, *inner, number) or {}
        if document.open_object(nested.get("source"), *inner, number, "source") is not None:
            return True
    return False


def _is_null(raw: Any) -> bool:
    return raw is None or bytes(raw) == b"null"


def _is_read_alike(document: Document, field: MediaField, holder: Object, text: str) -> bool:
    """Return True unless the engine decodes the media in another way: it would get a wrong hash."""
    if field.text == "data":
        return "format" not in holder or is_clear_format(document.open_text(holder["format"]))
    return is_clear(text)
