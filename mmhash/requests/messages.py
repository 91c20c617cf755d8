"""Messages (Anthropic): read as the chat that the engine makes of them. No engine takes hashes."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from mmhash.engines.engine import Engine, NoFieldError
from mmhash.errors import InputValueError
from mmhash.requests import sglang_messages, vllm_messages
from mmhash.requests.document import Document
from mmhash.requests.engine_request import EngineRequest, Place
from mmhash.requests.media_source import is_clear
from mmhash.requests.message_blocks import AddImage
from mmhash.requests.raw_json import RequestError, kind_of

# The engine puts the media type into a data: URL, where a comma would begin the content.
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+", re.ASCII)

_CONVERTERS: Mapping[str, Callable[[Mapping[str, Any], str, AddImage], dict[str, Any]]] = {
    "sglang": sglang_messages.convert,
    "vllm": vllm_messages.convert,
}


def read(document: Document, engine: Engine, release: str) -> EngineRequest:
    """Return a Messages request as an engine reads it."""
    convert = _CONVERTERS.get(engine.name)
    if convert is None:
        raise NoFieldError(f"{engine.title} takes no Messages requests")
    if not isinstance(document.members.get("messages"), list):
        kind = kind_of(document.members.get("messages"))
        raise RequestError(f"is {kind}, not a list of messages", "messages")
    request = EngineRequest(document, engine, release)
    try:
        request.chat = convert(document.members, release, partial(_add_image, request))
    except InputValueError as error:
        request.note_unclear(str(error))
    return request


def _add_image(request: EngineRequest, source: Any) -> dict[str, Any]:
    kind = source.get("type") if isinstance(source, dict) else None
    name = {"base64": "data", "url": "url"}.get(kind) if isinstance(kind, str) else None
    text = source.get(name) if name else None
    part = {"type": "image_url"}
    if not isinstance(text, str) or not text or not is_clear(text):
        request.note_unclear(
            "the source of an image must be base64, or a URL that all engines read alike"
        )
        return part
    media_type = source.get("media_type", "image/png")
    if name == "data" and not (isinstance(media_type, str) and _MEDIA_TYPE.fullmatch(media_type)):
        request.note_unclear("the media_type of an image must be like image/png")
    media = request.document.source("image", text, is_url=name == "url")
    request.add_part(part, Place(media))
    return part
