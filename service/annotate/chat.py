"""OpenAI chat requests: the parts of messages whose media take a hash, by engine.

As read by vLLM 0.33.0 (renderers/chat_utils) and SGLang 0.5.23 (entrypoints/openai/protocol.py).
"""

from collections.abc import Callable

from mmhash_service.annotate.places import Media, Place, image_of_sglang
from mmhash_service.annotate.rawjson import Object, open_list, open_object, open_text
from mmhash_service.problems import Problem

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


def find_in_chat(body: Object, engine: str) -> list[Place]:
    """Open the parts of all messages, take callers' hashes out, and say where ours go."""
    find = _FIND[engine]
    places = []
    messages = open_list(body["messages"])
    if messages is None:
        raise Problem("invalid-json")
    for number, raw in enumerate(messages):
        message = open_object(raw)
        if message is None:
            raise Problem("invalid-json")
        parts = open_list(message.get("content"))
        if parts is None:  # a text, or nothing
            continue
        for at, raw_part in enumerate(parts):
            part = open_object(raw_part)
            if part is None:
                continue
            parts[at] = part
            if (place := find(part)) is not None:
                places.append(place)
        message["content"] = parts
        messages[number] = message
    body["messages"] = messages
    return places


def _find_in_vllm(part: Object) -> Place | None:
    part.pop("uuid", None)
    fields = part.keys() & _VLLM_FIELDS
    field = fields.pop() if len(fields) == 1 else ""
    if open_text(part.get("type")) not in _VLLM_TYPES.get(field, ()):
        return None
    inner = open_object(part[field])
    if field == "input_audio":
        data = open_text(inner.get("data")) if inner else None
        return Place(Media(is_image=False, data=data), part, "uuid") if data else None
    url = open_text(part[field] if inner is None else inner.get("url"))
    return Place(Media(is_image=field == "image_url", url=url), part, "uuid") if url else None


def _find_in_sglang(part: Object) -> Place | None:
    image = open_object(part.get("image_url"))
    if image is None:
        return None
    image.pop("content_hash", None)
    part["image_url"] = image
    url = open_text(image.get("url"))
    if not url or open_text(part.get("type")) != "image_url":
        return None
    return Place(image_of_sglang(url), image, "content_hash")


_FIND: dict[str, Callable[[Object], Place | None]] = {
    "vllm": _find_in_vllm,
    "sglang": _find_in_sglang,
}
