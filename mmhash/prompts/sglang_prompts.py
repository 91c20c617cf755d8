"""Build prompts as SGLang does (0.5.23: serving_chat.py, jinja_template_utils.py)."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from mmhash.engines.sglang.releases import reads_every_form
from mmhash.errors import InputValueError
from mmhash.prompts.families.family import Family
from mmhash.prompts.files import ModelFiles
from mmhash.prompts.options import PlanOptions
from mmhash.prompts.templates import (
    NOT_PASSED,
    OWN_ARGUMENTS,
    ChatTemplate,
    TemplateRenderError,
)
from mmhash.requests import EngineRequest, MediaPart, UnplannedError
from mmhash.requests.members import (
    completion_prompts,
    expect_ids,
    expect_text,
    read_object,
    read_switch,
    read_template_kwargs,
    refuse,
)

# The roles of messages that are not the user's.
_ROLES = frozenset(
    "system assistant tool function developer latest_reminder root".split()  # noqa: SIM905
)
_EFFORTS = frozenset("none minimal low medium high xhigh ultra max".split())  # noqa: SIM905

# A template with one of these words belongs to a reasoning model.
_REASONING_WORDS = re.compile("think|reason", re.IGNORECASE)

_TYPES = frozenset("object array string number integer boolean null".split())  # noqa: SIM905

# BASE:ADAPTER. A model's name has a colon only in an object store's URI.
_ADAPTER = re.compile(r":(?!//)")

# The members that SGLang keeps in messages that are not the user's, in its order.
_MEMBERS = (
    "tool_call_id",
    "name",
    "phase",
    "reasoning_content",
    "tool_calls",
    "tools",
    "prefix",
)


def prompt_ids(family: Family, request: EngineRequest, options: PlanOptions) -> list[list[int]]:
    """Return the ids of each prompt before expansion."""
    body, form = request.members, request.document.form
    # Each server draws an adapter's id at random, and names pages by it. A session adds its own
    # tokens. SGLang ignores mm_processor_kwargs for the families that mmhash plans.
    for name in ("lora_path", "session_params", "mm_processor_kwargs"):
        refuse(body, name)
    encode = partial(family.files.encoder.encode, tenant=options["tenant"])
    encode_prompt = partial(encode, add_special_tokens=True)
    if form == "completions":
        refuse(body, "suffix")
        _refuse_adapter(body)
        return completion_prompts(body, encode_prompt)
    if form == "generate":
        ids, text = body.get("input_ids"), body.get("text")
        if ids is None and isinstance(text, str):
            return [encode_prompt(text)]
        if text is not None and request.places:  # most processors read the ids, some the text
            raise UnplannedError(
                "no plan for media together with both text and input_ids: send one of the two"
            )
        return [expect_ids("input_ids", ids)]
    pieces = _chat_texts(family.files, request, options)
    return [list(chain.from_iterable(map(encode, pieces)))]


def _refuse_adapter(body: Mapping[str, Any]) -> None:
    if isinstance(served := body.get("model"), str) and _ADAPTER.search(served):
        raise UnplannedError("no plan for a request with an adapter")


def _chat_texts(files: ModelFiles, request: EngineRequest, options: PlanOptions) -> list[str]:
    """Return the text of a chat, or two texts if SGLang encodes a begun message separately."""
    body, form, release = request.members, request.document.form, request.release
    refuse(body, "input_ids")
    _refuse_adapter(body)
    template = files.template(options["chat_template"], with_tools=False)
    content_format = template.content_format("sglang", release)
    if request.places and content_format == "string":
        raise InputValueError("the chat template takes texts only, so SGLang drops media")
    if form == "messages" and body["thinks"] and _REASONING_WORDS.search(template.source):
        raise UnplannedError("no plan for thinking: it depends on the server's reasoning parser")
    messages = request.messages()
    if form != "chat" and (
        template.drops_inline_system or (form == "responses" and release == "0.5.20")
    ):
        messages = _with_system_first(messages, form, leading=body.get("leading_system", False))
    messages = [_message(message, content_format) for message in messages]
    _refuse_reordered(messages)
    begun = _begun_message(messages)
    if begun is not None:
        messages.pop()
        if not read_switch(body, "continue_final_message", default=False):
            messages.append({"role": "user", "content": begun})  # SGLang always ends with the user
            begun = None
    variables = files.special_tokens | _template_variables(body)
    text = _render(template, messages, variables, _tools(body, release, form))
    if not begun:
        return [text]
    # Without media, SGLang appends the ids of the begun message to the ids of the template's text.
    is_one_text = (
        request.places or release == "0.5.20" or files.encoder.encode("", add_special_tokens=True)
    )
    return [text + begun] if is_one_text else [text, begun]


def _render(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    variables: Mapping[str, Any],
    tools: list[dict[str, Any]] | None,
) -> str:
    """Render a conversation. Some templates expect tools without their wrapper."""
    try:
        return template.render(messages, **variables, tools=tools)
    except TemplateRenderError:
        if tools is None:
            raise
        return template.render(messages, **variables, tools=[tool["function"] for tool in tools])


def _begun_message(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the text of the final message if it is the assistant's, otherwise None."""
    last = messages[-1] if messages else {}
    is_begun = last.get("role") == "assistant" and isinstance(last["content"], str)
    return str(last["content"]) if is_begun else None


def _refuse_reordered(messages: Sequence[Mapping[str, Any]]) -> None:
    """Refuse tool results that have media and are not in the order of their calls.

    SGLang sorts the results for some templates.
    """
    called: list[Any] = []
    run: list[Mapping[str, Any]] = []
    for message in [*messages, {"role": "user"}]:
        if message["role"] in {"tool", "function"}:
            run.append(message)
            continue
        answered = [one.get("tool_call_id") for one in run]
        in_order = [one for one in called if one in answered]
        is_sorted = in_order == answered or sorted(map(str, in_order)) != sorted(map(str, answered))
        if not is_sorted and any(map(_has_media, run)):
            raise UnplannedError(
                "no plan for tool results with media in another order than their calls: keep the"
                " order of the calls"
            )
        calls = message.get("tool_calls")
        called = [call["id"] for call in calls] if isinstance(calls, list) else []
        run = []


def _has_media(message: Mapping[str, Any]) -> bool:
    content = message["content"]
    return isinstance(content, list) and any(
        part["type"] not in {"text", "tool_reference"} for part in content
    )


def _with_system_first(
    messages: Sequence[dict[str, Any]], form: str, *, leading: bool
) -> list[dict[str, Any]]:
    """Return the messages with a single system message, for templates that take only one."""
    system = [one.get("content") for one in messages if one.get("role") == "system"]
    others = [one for one in messages if one.get("role") != "system"]
    texts: list[str] = []
    for number, content in enumerate(system):
        parts = [{"text": content}] if isinstance(content, str) else content or ()
        if not isinstance(parts, Sequence):
            raise InputValueError("the content of a message must be a text or a list of parts")
        held = [part["text"] for part in parts if isinstance(part, dict) and "text" in part]
        found = [expect_text("the text of a content part", text) for text in held]
        if form == "messages" and not (leading and number == 0):
            found = [text.strip() for text in found if text.strip()]
            found = ["\n".join(found)] if found else []
        texts += found
    joined = ("\n" if form == "messages" else "\n\n").join(texts)
    return [{"role": "system", "content": joined}, *others] if texts else others


def _tools(body: Mapping[str, Any], release: str, form: str) -> list[dict[str, Any]] | None:
    """Return the tools for the template. SGLang corrects the schemas that it checks."""
    tools, choice = body.get("tools"), body.get("tool_choice")
    if tools is not None and not (
        isinstance(tools, list)
        and all(isinstance(one, dict) and isinstance(one.get("function"), dict) for one in tools)
    ):
        raise InputValueError("tools must be a list of objects, each with a function")
    if not tools or choice == "none":
        return None
    if not reads_every_form(release):
        raise UnplannedError("mmhash plans tools for SGLang 0.5.20 and 0.5.23 only")
    if isinstance(choice, dict):
        chosen = read_object(choice, "function").get("name")
        tools = [tool for tool in tools if tool["function"].get("name") == chosen]
    for tool in tools if form != "responses" else ():
        if _has_odd_type(tool["function"].get("parameters")):
            raise UnplannedError("no plan for a tool whose schema has an unknown type")
    return [_tool(tool, release) for tool in tools] or None


def _tool(tool: Mapping[str, Any], release: str) -> dict[str, Any]:
    function = tool["function"]
    names: Sequence[str] = ("description", "name", "parameters", "strict", "defer_loading")
    made = {name: function.get(name) for name in names}
    deferred = tool.get("defer_loading")
    if made["defer_loading"] is None:
        made["defer_loading"] = deferred
    if release == "0.5.20":
        made["strict"] = bool(made["strict"])
    else:  # in the client's order
        names = [*(name for name in function if name in made), *names]
    unset = {name for name in ("strict", "defer_loading") if made[name] is None}
    shown = {name: made[name] for name in names if name not in unset}
    return {"type": tool.get("type", "function"), "function": shown, "defer_loading": deferred}


def _has_odd_type(schema: Any) -> bool:
    """Return True if a schema has a type that SGLang may correct, such as varchar."""
    if isinstance(schema, list):
        return any(map(_has_odd_type, schema))
    if not isinstance(schema, dict):
        return False
    types = schema.get("type")
    if isinstance(types, str) or (
        isinstance(types, list) and all(isinstance(one, str) for one in types)
    ):
        listed = [types] if isinstance(types, str) else types
        if not _TYPES.issuperset(listed) or len(set(listed)) < len(listed):
            return True
    return any(map(_has_odd_type, schema.values()))


def _template_variables(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template's other variables."""
    given = read_template_kwargs(body, OWN_ARGUMENTS)
    refuse(body, "chat_template")
    values = {name: value for name, value in given.items() if name not in NOT_PASSED}
    return {
        "add_generation_prompt": True,
        "documents": None,
        **_reasoning(body),
        **values,
    }


def _reasoning(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables that turn reasoning on or off in templates."""
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
            raise InputValueError("reasoning.enabled must be true or false")
        is_enabled = bool(enabled)
    if effort is None:
        return {"thinking": True, "enable_thinking": True} if is_enabled else {}
    if not (effort in _EFFORTS if isinstance(effort, str) else type(effort) is float):
        raise InputValueError("reasoning_effort must be a known name or a number such as 0.5")
    thinks = effort != "none"
    return {"reasoning_effort": effort, "thinking": thinks, "enable_thinking": thinks}


def _message(message: Mapping[str, Any], content_format: str) -> dict[str, Any]:
    made = _known_members(message)
    content = made["content"]
    if isinstance(content, list) and content_format == "openai":
        made["content"] = made.pop("content")  # last, for templates that print all members
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
    """Return the members of a message that SGLang knows. SGLang drops all other members."""
    role = message.get("role")
    if not isinstance(role, str):
        raise InputValueError("each message must have a role")
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
        raise InputValueError("a content part must be an object")
    if part.get("type") == "tool_reference" and isinstance(part.get("name"), str):
        return {"type": "tool_reference", "name": part["name"]}
    if part.get("type") in ("text", "input_text") and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    raise UnplannedError(f"no plan for a content part of type {str(part.get('type'))[:40]!r}")


def _call(call: Any, *, parses: bool) -> dict[str, Any]:
    """Return a tool call with the members that SGLang gives it."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or call.get("type", "function") != "function":
        raise InputValueError("tool_calls must be objects of type function")
    arguments, index = function.get("arguments"), call.get("index")
    if type(index) is not int and index is not None:
        raise InputValueError("the index of a tool call must be an integer")
    if parses and isinstance(arguments, str):
        try:
            arguments = json.loads(arguments, parse_int=_integer)
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            raise InputValueError("the arguments of a tool call must be a JSON object")
    return {
        "id": call.get("id"),
        "index": index,
        "type": "function",
        "function": {"name": function.get("name"), "arguments": arguments},
    }


def _integer(text: str) -> int | float:
    """Parse an integer as SGLang's parser does: as a float if it does not fit in 64 bits."""
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 64 else float(text)
