"""Build prompts as vLLM does (0.32: renderers/chat_utils.py, renderers/hf.py)."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from mmhash.engines.vllm.releases import strips_billing
from mmhash.errors import InputValueError
from mmhash.prompts.families.family import Family, Placeholder
from mmhash.prompts.options import PlanOptions
from mmhash.prompts.templates import NOT_PASSED, OWN_ARGUMENTS, ChatTemplate
from mmhash.requests import EngineRequest, MediaPart, Modality, UnplannedError
from mmhash.requests.members import (
    arguments_of,
    completion_prompts,
    read_objects,
    read_switch,
    read_template_kwargs,
    refuse,
)
from mmhash.requests.vllm_messages import BILLING_HEADER

_TEXT_TYPES = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
    "tool_reference": "name",
}

# Members of a part that vLLM does not pass to the template. All other members pass.
_KNOWN_MEMBERS = frozenset(
    "type text uuid image_url video_url audio_url input_audio image_pil image_embeds "  # noqa: SIM905
    "audio_embeds video_embeds prompt_embeds data thinking closed refusal name file "
    "prompt_cache_breakpoint".split()
)

# Arguments that transformers' apply_chat_template passes on to the template.
_ARGUMENTS = frozenset({"add_generation_prompt", "continue_final_message", "documents"})

# Values that count as missing in chat_template_kwargs.
_UNSET = (None, "auto")

# The efforts that a template may show in place of "none".
_EFFORTS = ("low", "medium", "high", "xhigh", "max")

# Members that vLLM's validation moves to the front of objects.
_CALL = ("id", "function", "type")
_FUNCTION_OF_CALL = ("arguments", "name")
_TOOL = ("function", "type")
_FUNCTION = ("name", "description", "parameters", "strict")


def prompt_ids(family: Family, request: EngineRequest, options: PlanOptions) -> list[list[int]]:
    """Return the ids of each prompt before expansion."""
    files, body = family.files, request.members
    encode = partial(files.encoder.encode, tenant=options["tenant"])
    if request.document.form == "completions":
        return _completion_ids(body, encode)
    if body.get("chat_template") is not None:
        raise UnplannedError(
            "no plan for a request with its own chat template: start the engine with it instead"
        )
    refuse(body, "truncate_prompt_tokens")
    transfer = body.get("kv_transfer_params")
    if isinstance(transfer, dict):
        refuse(transfer, "prompt_token_ids")  # these ids replace the messages
    tools = _tools(body)
    template = files.template(options["chat_template"], with_tools=tools is not None)
    messages = request.messages()
    if request.document.form == "messages":
        body = _as_chat(body, template)
        both = (files.template(options["chat_template"], with_tools=one) for one in (False, True))
        if any(one.refuses_inline_system for one in both):
            messages = _with_system_first(messages)
    text = template.render(
        _conversation(family, request, messages, template),
        **files.special_tokens | _template_variables(body, template),
        tools=tools,
    )
    add_special_tokens = read_switch(body, "add_special_tokens", default=False)
    return [encode(text, add_special_tokens=add_special_tokens)]


def _completion_ids(body: Mapping[str, Any], encode: Callable[..., list[int]]) -> list[list[int]]:
    for name in ("truncate_prompt_tokens", "suffix", "prompt_embeds"):
        refuse(body, name)
    add_special_tokens = read_switch(body, "add_special_tokens", default=True)
    return completion_prompts(body, partial(encode, add_special_tokens=add_special_tokens))


def _ordered(value: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return an object with these members first."""
    return {name: value[name] for name in names if name in value} | dict(value)


def _conversation(
    family: Family,
    request: EngineRequest,
    messages: Sequence[Mapping[str, Any]],
    template: ChatTemplate,
) -> list[dict[str, Any]]:
    """Return the messages for the template, with placeholders if the template places none."""
    if strips_billing(request.release):
        messages = [_without_billing(message) for message in messages]
    texts_only = template.content_format("vllm", request.release) == "string"
    flatten = _Flattening(family.placeholders).flatten if texts_only else None
    made = [_message(message, flatten) for message in messages]
    # vLLM's validation, which Responses requests skip, reorders the members of messages.
    is_ordered = request.document.form != "responses"
    for message in made:
        if message["role"] == "assistant":
            _parse_arguments(message, is_ordered=is_ordered)
    if any(message["role"] == "developer" for message in made) and not any(
        f"{quote}developer{quote}" in template.source for quote in ("'", '"')
    ):
        made = _join_system([_as_system(message) for message in made])
    return made


def _as_chat(body: dict[str, Any], template: ChatTemplate) -> dict[str, Any]:
    """Return a Messages request's members, with a reasoning_effort for disabled thinking."""
    if body.get("thinking") != "disabled":
        return body
    return {**body, "reasoning_effort": _effort_of_no_thinking(template)}


def _effort_of_no_thinking(template: ChatTemplate) -> str:
    """Return "none" unless the template fails with it, or shows it as another effort."""

    def shown(effort: str) -> str:
        variables = _template_variables({"reasoning_effort": effort}, template)
        return template.render([{"role": "user", "content": "Hi"}], tools=None, **variables)

    try:
        without = shown("none")
    except InputValueError:
        return "low"
    for effort in _EFFORTS:
        with suppress(InputValueError):
            if shown(effort) == without:
                return "low"
    return "none"


def _with_system_first(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with all system texts joined in the first message."""
    text = "".join(one["content"] for one in messages if one["role"] == "system")
    others = [one for one in messages if one["role"] != "system"]
    return [{"role": "system", "content": text}, *others] if text else others


def _template_variables(body: Mapping[str, Any], template: ChatTemplate) -> dict[str, Any]:
    """Return the template's other variables, and the arguments for rendering."""
    given = read_template_kwargs(body, OWN_ARGUMENTS | {"tokenize"})
    effort = body.get("reasoning_effort")
    values = {name: value for name, value in given.items() if value not in _UNSET}
    # Members of the request override chat_template_kwargs if they are set.
    if body.get("documents") is not None:
        values["documents"] = body["documents"]
    for name, default in (("add_generation_prompt", True), ("continue_final_message", False)):
        values[name] = read_switch(body, name, default=default)
    if effort is not None:
        values["reasoning_effort"] = effort
        if "enable_thinking" not in given:
            values["enable_thinking"] = effort != "none"
    kept = {
        name: value
        for name, value in values.items()
        if name in _ARGUMENTS or (name in template.variables and name not in NOT_PASSED)
    }
    kept.setdefault("documents", None)
    if kept["continue_final_message"] and kept["add_generation_prompt"]:
        raise InputValueError("continue_final_message needs add_generation_prompt to be false")
    return kept


def _tools(body: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the tools with vLLM's default members."""
    if body.get("tools") is None:
        return None
    tools = read_objects(body, "tools")
    made = []
    for tool in tools:
        function = tool.get("function")
        if tool.get("type", "function") != "function" or not isinstance(function, dict):
            raise InputValueError("mmhash plans only tools of type function")
        made.append(_tool(tool, function))
    return made


def _tool(tool: Mapping[str, Any], function: Mapping[str, Any]) -> dict[str, Any]:
    deferred = _given_switch(tool, "defer_loading")  # also in the function
    made = {name: function.get(name) for name in ("name", "description", "parameters")}
    made |= _given_switch(function, "strict") | deferred | _given_switch(function, "defer_loading")
    return {"type": "function", "function": made, **deferred}


def _given_switch(members: Mapping[str, Any], name: str) -> dict[str, bool]:
    """Return the member in a dict, or an empty dict if the member is null."""
    if members.get(name) is None:
        return {}
    return {name: read_switch(members, name, default=False)}


def _message(
    message: Mapping[str, Any], flatten: Callable[[list[Any]], str] | None
) -> dict[str, Any]:
    """Return a message for the template. `flatten` joins its content into one text."""
    role = message.get("role")
    if not isinstance(role, str):
        raise InputValueError("each message must have a role")
    parts = list(_content_parts(message))
    made: dict[str, Any] = {"role": role}
    if flatten is None:
        made["content"] = [one for part in parts if (one := _wrapped(part)) is not None]
    else:
        made["content"] = flatten(parts)
    _add_members(made, message)
    return made


def _content_parts(message: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the parts of a message's content. A text counts as one part."""
    content = message.get("content")
    if isinstance(content, str):
        yield {"type": "text", "text": content}
    elif isinstance(content, list):
        yield from content
    elif content is not None:
        raise InputValueError("the content of a message must be a text or a list of parts")


def _add_members(made: dict[str, Any], message: Mapping[str, Any]) -> None:
    """Add the members that the template receives for a message of this role."""
    role = made["role"]
    if role == "assistant":
        if (calls := message.get("tool_calls")) is not None:
            if not isinstance(calls, list):
                raise InputValueError("tool_calls must be a list")
            made["tool_calls"] = list(calls)
        reasoning = message.get("reasoning")
        if reasoning is None:
            reasoning = message.get("reasoning_content")  # the deprecated name
        if reasoning is not None:
            made["reasoning"] = made["reasoning_content"] = reasoning
    elif role == "tool":
        if "tool_call_id" in message:
            if message["tool_call_id"] is None:  # some releases drop it
                raise InputValueError("the tool_call_id of a message must not be null")
            made["tool_call_id"] = message["tool_call_id"]
        content = made["content"]
        if isinstance(content, list) and all(part.get("type") == "text" for part in content):
            made["content"] = "\n".join(part["text"] for part in content)
    for name in ("name", "task"):
        if isinstance(message.get(name), str):
            made[name] = message[name]
    if role == "developer":
        made["tools"] = _developer_tools(message.get("tools"))


def _developer_tools(tools: Any) -> Any:
    if not isinstance(tools, list):
        return tools
    made = []
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict):
            raise InputValueError("tools of a message must be objects of type function")
        made.append(_ordered({**tool, "function": _ordered(function, _FUNCTION)}, _TOOL))
    return made


def _wrapped(part: Any) -> dict[str, Any] | None:
    """Return a part as an object with a text, or with the type of its modality."""
    if isinstance(part, MediaPart):
        return {"type": part.modality, **_unknown_members(part.others)}
    text = _text(part)
    if text is None:
        return None
    if isinstance(part, dict) and part.get("type") == "tool_reference":
        return {"type": "tool_reference", "name": text}
    others = _unknown_members(part) if isinstance(part, dict) else {}
    return {"type": "text", "text": text, **others}


def _unknown_members(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name not in _KNOWN_MEMBERS}


def _text(part: Any) -> str | None:
    """Return the text of a part, or None for media and for a null text."""
    if isinstance(part, str):
        return part
    if isinstance(part, MediaPart):
        return None
    if not isinstance(part, dict):
        raise InputValueError("a content part must be a text or an object")
    type_ = part.get("type", "")
    member = _TEXT_TYPES.get(type_) if isinstance(type_, str) else None
    if member is None:
        raise UnplannedError(f"no plan for a content part of type {str(part.get('type'))[:40]!r}")
    text = part.get(member)
    if text is None and part["type"] not in {"text", "refusal"}:
        raise InputValueError("the text of a content part must not be null")  # vLLM writes "None"
    if text is not None and not isinstance(text, str):
        raise InputValueError(f"{member} of a content part must be a text")
    return text


class _Flattening:
    """Joins each message's content into one text, and numbers a conversation's placeholders."""

    def __init__(self, placeholders: Mapping[Modality, Placeholder]) -> None:
        self._placeholders = placeholders
        self._counts: Counter[Modality] = Counter()

    def flatten(self, parts: list[Any]) -> str:
        """Return the content as one text. Placeholders that the text lacks come first."""
        joined = "\n".join(text for part in parts if (text := _text(part)))
        needed: dict[Modality, list[str]] = {}
        for part in parts:
            if isinstance(part, MediaPart):
                needed.setdefault(part.modality, []).append(self._next(part.modality))
        missing = []
        for text, count in Counter(text for texts in needed.values() for text in texts).items():
            absent = count - joined.count(text)
            if absent < 0:
                raise InputValueError(f"the text has more placeholders {text!r} than items")
            missing += [text] * absent
        return "\n".join([*missing, joined] if joined else missing)

    def _next(self, modality: Modality) -> str:
        """Return the placeholder of the next item."""
        if modality not in self._placeholders:
            raise UnplannedError(f"no plan for {modality} with this model")
        text = self._placeholders[modality].text
        if not text:
            raise InputValueError(f"vLLM writes no placeholder for {modality} into a text")
        self._counts[modality] += 1
        return text.replace("{i}", str(self._counts[modality]))


def _without_billing(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Remove Claude Code's billing line, which changes with every request, from system texts."""
    if message.get("role") != "system":
        return message
    kept = []
    for part in _content_parts(message):
        text = part if isinstance(part, str) else part.get("text") if _is_text(part) else None
        if not (isinstance(text, str) and text.startswith(BILLING_HEADER)):
            kept.append(part)
            continue
        if rest := text.partition("\n")[2]:
            kept.append(rest if isinstance(part, str) else {**part, "text": rest})
    return {**message, "content": kept}


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text"


def _parse_arguments(message: dict[str, Any], *, is_ordered: bool) -> None:
    """Parse the arguments of tool calls: templates expect objects."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return
    if not calls:
        del message["tool_calls"]
        return
    made = []
    for call in calls:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or call.get("type", "function") != "function":
            raise InputValueError("tool_calls must be objects of type function")
        parsed = {**call, "function": {**function, "arguments": arguments_of(function)}}
        made.append(_ordered_call(parsed) if is_ordered else parsed)
    message["tool_calls"] = made


def _ordered_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = _ordered(call["function"], _FUNCTION_OF_CALL)
    return _ordered({**call, "function": function}, _CALL)


def _as_system(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] != "developer":
        return message
    return {**{name: one for name, one in message.items() if name != "tools"}, "role": "system"}


def _join_system(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages with a single system message at the start."""
    positions = [index for index, one in enumerate(messages) if one["role"] == "system"]
    if positions in ([], [0]):
        return messages
    texts = []
    for index in positions:
        content = messages[index].get("content", "")
        if isinstance(content, list):
            content = "\n".join(part["text"] for part in content if "text" in part)
        texts += [content] if content else []
    joined = {"role": "system", "content": "\n\n".join(texts)}
    return [joined, *(one for one in messages if one["role"] != "system")]
