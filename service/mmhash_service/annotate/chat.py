"""OpenAI chat requests: find the parts of messages whose media take a hash."""

from collections.abc import Iterator
from typing import Any

from mmhash.engines.engine import ChatFormat, MediaField
from mmhash.engines.media_text import is_clear, is_clear_format, is_frames
from mmhash_service.annotate.raw_json import Object, open_list, open_object, open_text
from mmhash_service.annotate.slots import HashSlot, Media, image_of
from mmhash_service.api.problems import InvalidPart, Problem


def find_in_chat(body: Object, chat: ChatFormat) -> list[tuple[MediaField, HashSlot]]:
    """Remove the callers' hashes from a chat, and return each slot with the field of its media."""
    found = []
    for messages, index in _messages(body):
        for part in _parts(messages, index):
            _refuse_source(part)
            _remove_hashes(part, chat)
            if (slot := _find_in_part(part, chat)) is not None:
                found.append(slot)
    return found


def _messages(body: Object) -> Iterator[tuple[list[Any], int]]:
    """Yield each message as a list and an index; in a batch, those of all its chats."""
    messages = open_list(body["messages"])
    if messages is None:
        raise Problem("invalid-json", [InvalidPart("is not an array", pointer="/messages")])
    body["messages"] = messages
    for index, raw in enumerate(messages):
        chat = open_list(raw)
        if chat is None:
            yield messages, index
            continue
        messages[index] = chat
        yield from ((chat, each) for each in range(len(chat)))


def _parts(messages: list[Any], index: int) -> Iterator[Object]:
    """Open a message, and yield each part of its content that is an object."""
    message = open_object(messages[index])
    if message is None:
        invalid = InvalidPart("is not an object", pointer=f"/messages/{index}")
        raise Problem("invalid-json", [invalid])
    messages[index] = message
    parts = open_list(message.get("content"))
    if parts is None:  # a text, or nothing
        return
    message["content"] = parts
    for number, raw in enumerate(parts):
        part = open_object(raw)
        if part is not None:
            parts[number] = part
            yield part


def _refuse_source(part: Object) -> None:
    """Refuse media of the Messages API, also in a tool's result: its parts take no hash."""
    nested = map(open_object, open_list(part.get("content")) or ())
    for each in (part, *nested):
        if each is not None and open_object(each.get("source")) is not None:
            raise Problem("no-field")


def _remove_hashes(part: Object, chat: ChatFormat) -> None:
    """Remove the callers' hashes from a part; if they are in its media objects, open those."""
    if not chat.in_media:
        part.pop(chat.hash_name, None)
        return
    for field in chat.media:
        media = open_object(part.get(field.name))
        if media is not None and (media.pop(chat.hash_name, None) is not None or field.takes_hash):
            part[field.name] = media


def _find_in_part(part: Object, chat: ChatFormat) -> tuple[MediaField, HashSlot] | None:
    field = _field_of(part, chat)
    if field is None or open_text(part.get("type")) not in field.types:
        return None
    opened = part[field.name]
    holder = opened if isinstance(opened, dict) else open_object(opened)
    if holder is not None:
        text = open_text(holder.get(field.text))
    else:
        text = open_text(opened) if field.allows_text else None
    if not text or not _is_read_alike(field, holder or {}, text):
        return None
    container = holder if chat.in_media else part
    if container is None:
        return None
    return field, HashSlot(_media(field, text, chat), container, chat.hash_name)


def _is_read_alike(field: MediaField, holder: Object, text: str) -> bool:
    """Return True unless the engine decodes the media in another way: it would get a wrong hash."""
    if field.text == "data":
        return "format" not in holder or is_clear_format(open_text(holder["format"]))
    return is_clear(text) and not (field.modality == "video" and is_frames(text))


def _field_of(part: Object, chat: ChatFormat) -> MediaField | None:
    """Return the field of a part that takes a hash; None if there is none, or it is ambiguous."""
    present = [field for field in chat.media if field.takes_hash and field.name in part]
    if not present:
        return None
    if chat.exclusive and (len(present) > 1 or not chat.exclusive.isdisjoint(part)):
        return None
    return present[0]


def _media(field: MediaField, text: str, chat: ChatFormat) -> Media:
    if field.text == "data":
        return Media(is_image=False, data=text)
    if chat.takes_base64:
        return image_of(text)
    return Media(is_image=field.modality == "image", url=text)
