"""Responses (OpenAI): read as the chat to which the engine converts the input items."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from mmhash.engines.engine import ChatFormat, Engine, NoFieldError
from mmhash.errors import InputValueError
from mmhash.requests import sglang_responses, vllm_responses
from mmhash.requests.chat import read_part
from mmhash.requests.document import Document
from mmhash.requests.engine_request import EngineRequest
from mmhash.requests.response_items import ReadPart

_CONVERTERS: Mapping[str, Callable[[Mapping[str, Any], str, ReadPart], dict[str, Any]]] = {
    "sglang": sglang_responses.convert,
    "vllm": vllm_responses.convert,
}


def read(document: Document, engine: Engine, release: str) -> EngineRequest:
    """Return a Responses request as an engine reads it."""
    convert, formats = _CONVERTERS.get(engine.name), engine.annotate
    if convert is None or formats is None or formats.chat is None:
        raise NoFieldError(f"{engine.title} takes no Responses requests")
    chat = _with_input_images(formats.chat(release))
    request = EngineRequest(document, engine, release, chat)
    if document.members.get("previous_response_id") is not None:
        request.note_unclear(
            "no plan for previous_response_id: only the worker knows the earlier messages"
        )
    try:
        request.chat = convert(document.members, release, partial(read_part, request, chat))
    except InputValueError as error:
        request.note_unclear(str(error))
    return request


def _with_input_images(chat: ChatFormat | None) -> ChatFormat | None:
    """Adapt a chat's format to Responses, whose images have their own type and are plain texts."""
    if chat is None:
        return None
    media = (
        one._replace(types=one.types | {"input_image"}, allows_text=True)
        if one.name == "image_url"
        else one
        for one in chat.media
    )
    return replace(chat, media=tuple(media))
