"""Prompts as SGLang makes them of requests (0.5.23: serving_chat.py, jinja_template_utils.py)."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mmhash.engines.options import SGLANG_OPTIONS
from mmhash.errors import InputValueError
from mmhash.prompts.families.family import PlacedItem
from mmhash.prompts.members import check_ids, read_template_kwargs, refuse
from mmhash.prompts.options import PlanOptions
from mmhash.prompts.templates import NOT_PASSED, OWN_ARGUMENTS
from mmhash.requests import EngineRequest, MediaPart, UnplannedError

if TYPE_CHECKING:
    from mmhash.prompts.model import Model

# The roles and members of a message that is not the user's.
_ROLES = frozenset(
    "system assistant tool function developer latest_reminder root".split()  # noqa: SIM905
)
_EFFORTS = frozenset("none minimal low medium high xhigh ultra max".split())  # noqa: SIM905

_OPTIONS = frozenset(SGLANG_OPTIONS)

# Members of a media object that are its content or identify it; "detail" has a default.
_WITHOUT_OPTIONS = frozenset({"url", "content_hash", "detail"})

# BASE:ADAPTER; a server's name has no colon, except that of an object store's URI.
_ADAPTER = re.compile(r":(?!//)")

_MEMBERS = ("tool_call_id", "name", "phase", "reasoning_content", "tool_calls", "prefix")


def token_ids(
    model: "Model", request: EngineRequest, release: str, options: PlanOptions
) -> list[int]:
    """Return the ids of a request before its placeholders are expanded."""
    body, form = request.members, request.document.form
    # Pages are named with an adapter's id, which each server draws; a session adds its own tokens.
    # The engine overlooks mm_processor_kwargs for the families that have plans.
    for name in ("lora_path", "session_params", "mm_processor_kwargs"):
        refuse(body, name)
    if form == "completions":
        raise UnplannedError("no plan for SGLang's completions")
    if form == "generate":
        ids, text = body.get("input_ids"), body.get("text")
        if ids is None and isinstance(text, str):
            return model.encode(text, add_special_tokens=True, tenant=options.tenant)
        if text is not None and request.places:  # ids come first, but not in every processor
            raise UnplannedError("no plan for media beside both text and input_ids")
        return check_ids("input_ids", ids)
    refuse(body, "input_ids")
    if isinstance(served := body.get("model"), str) and _ADAPTER.search(served):
        raise UnplannedError("no plan for a request with an adapter")
    template = model.template(options.chat_template, with_tools=False)
    content_format = template.content_format("sglang", release)
    if request.places and content_format == "string":
        raise InputValueError("the chat template takes texts only: SGLang leaves media out")
    text = template.render(
        conversation(request.messages(), content_format),
        **model.special_tokens | template_variables(body),
    )
    return model.encode(text, add_special_tokens=False, tenant=options.tenant)


def ranges(item: PlacedItem) -> list[tuple[int, int]]:
    """Return the ranges of the item that take embeddings: SGLang pads only these."""
    return item.embeds


def has_media_options(request: EngineRequest) -> bool:
    """Return True if media may have options: the plugin names it by these too, as it parsed them.

    So a plan for the plugin ends before such media.
    """
    if not _OPTIONS.isdisjoint(request.members):
        return True
    if request.document.form != "chat":
        return False
    return not all(_is_plain(*request.objects_of(place)[-2:]) for place in request.places)


def _is_plain(part: Any, media: Any) -> bool:
    """Return True if a content part of a chat has no option, nor has its media."""
    if not isinstance(media, dict):
        return False
    detail = media.get("detail") or "auto"
    has_option = not (media.keys() <= _WITHOUT_OPTIONS and _OPTIONS.isdisjoint(part))
    return not has_option and detail in ("auto", "default")


def conversation(
    messages: Sequence[Mapping[str, Any]], content_format: str
) -> list[dict[str, Any]]:
    """Return the messages as the template gets them."""
    made = [_message(message, content_format) for message in messages]
    last = made[-1]
    if last["role"] == "assistant" and isinstance(last["content"], str):
        made[-1] = {"role": "user", "content": last["content"]}  # the last is always the user's
    return made


def template_variables(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the other variables of the template."""
    given = read_template_kwargs(body, OWN_ARGUMENTS)
    refuse(body, "chat_template")
    if body.get("tools") or body.get("continue_final_message"):
        raise UnplannedError("no plan for SGLang's chats with tools or continue_final_message")
    values = {name: value for name, value in given.items() if name not in NOT_PASSED}
    return {
        "add_generation_prompt": True,
        "tools": None,
        "documents": None,
        **_reasoning(body),
        **values,
    }


def _reasoning(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables by which templates turn reasoning on or off."""
    asked = body.get("reasoning")
    effort = body.get("reasoning_effort")
    is_enabled = False
    if isinstance(asked, dict):
        own = asked.get("effort")
        own = asked.get("reasoning_effort") if own is None else own
        effort = effort if own is None else own
        enabled = asked.get("enabled")
        enabled = asked.get("enable") if enabled is None else enabled
        if not isinstance(enabled, bool | None):
            raise InputValueError("enabled of reasoning is true or false")
        is_enabled = bool(enabled)
    if effort is None:
        return {"thinking": True, "enable_thinking": True} if is_enabled else {}
    if not (effort in _EFFORTS if isinstance(effort, str) else type(effort) is float):
        raise InputValueError("reasoning_effort is a known name or a number such as 0.5")
    thinks = effort != "none"
    return {"reasoning_effort": effort, "thinking": thinks, "enable_thinking": thinks}


def _message(message: Mapping[str, Any], content_format: str) -> dict[str, Any]:
    made = _known_members(message)
    content = made["content"]
    if isinstance(content, list) and content_format == "openai":
        made["content"] = made.pop("content")  # the last member, if a template shows them all
    if content is None:
        made["content"] = ""
    elif isinstance(content, list):
        parts = [_part(part) for part in content]
        texts = [part["text"] for part in parts if part["type"] == "text"]
        is_text = len(texts) == len(parts)
        if content_format == "string" or (made["role"] == "tool" and is_text):
            made["content"] = " ".join(texts)
        else:
            made["content"] = parts
    if isinstance(calls := made.get("tool_calls"), list):
        made["tool_calls"] = [_call(call, parses=made["role"] == "assistant") for call in calls]
    return made


def _known_members(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members that the engine's model of a message has; it drops others."""
    role = message.get("role")
    if not isinstance(role, str):
        raise InputValueError("each message has a role")
    content = message.get("content")
    if role == "user":
        return {"role": role, "content": content}
    if role.lower() not in _ROLES:
        raise InputValueError(f"SGLang has no role {role[:40]!r}")
    if message.get("tools"):
        raise UnplannedError("no plan for SGLang's messages with tools")
    known = {name: one for name in _MEMBERS if (one := message.get(name)) is not None}
    return {"role": role.lower(), "content": content, **known}


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, MediaPart):
        return {"type": part.modality}
    if not isinstance(part, dict):
        raise InputValueError("a content part is an object")
    if part.get("type") in {"text", "input_text"} and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    raise UnplannedError(f"no plan for a content part of type {str(part.get('type'))[:40]!r}")


def _call(call: Any, *, parses: bool) -> dict[str, Any]:
    """Return a tool call with the members that it has in the engine."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type", "function") != "function":
        raise InputValueError("tool_calls are objects of type function")
    arguments, index = function.get("arguments"), call.get("index")
    if type(index) is not int and index is not None:
        raise InputValueError("the index of a tool call is an integer")
    if parses and isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, parse_int=_integer)
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            raise InputValueError("the arguments of a tool call are a JSON object")
    return {
        "id": call.get("id"),
        "index": index,
        "type": "function",
        "function": {"name": function.get("name"), "arguments": arguments},
    }


def _integer(text: str) -> int | float:
    """Return a number as the engine's parser does: a float if 64 bits do not hold it."""
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 64 else float(text)
