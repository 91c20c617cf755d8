"""OpenAI chat requests: the parts of messages whose media take a hash, by engine.

As read by vLLM 0.33.0 (renderers/chat_utils) and SGLang 0.5.23 (entrypoints/openai/protocol.py).
"""

from collections.abc import Callable, Iterator
from typing import Any

from mmhash_service.annotate.options import vllm_options
from mmhash_service.annotate.raw_json import Object, open_list, open_object, open_text
from mmhash_service.annotate.slots import HashSlot, Media, image_of_sglang
from mmhash_service.api.problems import Problem

# The fields by which vLLM takes media, and the types that their parts may have.
_VLLM_TYPES = {
    "image_url": {None, "image_url", "input_image"},
    "video_url": {None, "video_url"},
    "audio_url": {None, "audio_url"},
    "input_audio": {None, "input_audio"},
}

# With a uuid vLLM goes by the fields of a part, without one by its type. So a part with two of
# these gets none: it might become another part.
_VLLM_FIELDS = _VLLM_TYPES.keys() | {
    "image_pil",
    "image_embeds",
    "audio_embeds",
    "video_embeds",
    "prompt_embeds",
    "tool_reference",
}


_MODALITIES = {
    "image_url": "image",
    "video_url": "video",
    "audio_url": "audio",
    "input_audio": "audio",
}


def find_in_vllm_chat(body: Object, release: str) -> list[HashSlot]:
    """Take callers' hashes out of a chat for vLLM, and say where ours go."""
    options: dict[str, str] = {}

    def find(part: Object) -> HashSlot | None:
        found = _find_in_vllm(part)
        if found is None:
            return None
        modality, place = found
        if modality not in options:
            options[modality] = vllm_options(body, release, modality)
        return place._replace(options=options[modality])

    return list(_find_in_chat(body, find))


def find_in_sglang_chat(body: Object) -> list[HashSlot]:
    """The same for SGLang, which hashes all options with the hash of the bytes."""
    return list(_find_in_chat(body, _find_in_sglang))


def _find_in_chat(body: Object, find: Callable[[Object], HashSlot | None]) -> Iterator[HashSlot]:
    """Open the parts of all messages; of a batch, of all its chats."""
    messages = open_list(body["messages"])
    if messages is None:
        raise Problem("invalid-json")
    body["messages"] = messages
    for number, raw in enumerate(messages):
        chat = open_list(raw)
        if chat is None:
            yield from _find_in_message(messages, number, find)
            continue
        messages[number] = chat
        for at in range(len(chat)):
            yield from _find_in_message(chat, at, find)


def _find_in_message(
    messages: list[Any], number: int, find: Callable[[Object], HashSlot | None]
) -> Iterator[HashSlot]:
    message = open_object(messages[number])
    if message is None:
        raise Problem("invalid-json")
    messages[number] = message
    parts = open_list(message.get("content"))
    if parts is None:  # a text, or nothing
        return
    message["content"] = parts
    for at, raw_part in enumerate(parts):
        part = open_object(raw_part)
        if part is None:
            continue
        parts[at] = part
        if (place := find(part)) is not None:
            yield place


def _find_in_vllm(part: Object) -> tuple[str, HashSlot] | None:
    part.pop("uuid", None)
    fields = part.keys() & _VLLM_FIELDS
    field = fields.pop() if len(fields) == 1 else ""
    if open_text(part.get("type")) not in _VLLM_TYPES.get(field, ()):
        return None
    inner = open_object(part[field])
    if field == "input_audio":
        data = open_text(inner.get("data")) if inner else None
        media = Media(is_image=False, data=data) if data else None
    else:
        url = open_text(part[field] if inner is None else inner.get("url"))
        media = Media(is_image=field == "image_url", url=url) if url else None
    return None if media is None else (_MODALITIES[field], HashSlot(media, part, "uuid"))


def _find_in_sglang(part: Object) -> HashSlot | None:
    for name in ("video_url", "audio_url"):
        media = open_object(part.get(name))
        if media is not None and media.pop("content_hash", None) is not None:
            part[name] = media
    image = open_object(part.get("image_url"))
    if image is None:
        return None
    image.pop("content_hash", None)
    part["image_url"] = image
    url = open_text(image.get("url"))
    if not url or open_text(part.get("type")) != "image_url":
        return None
    return HashSlot(image_of_sglang(url), image, "content_hash")
