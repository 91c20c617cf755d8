"""A model's chat template, parsed once and rendered as transformers and the engines render it."""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any, Literal, NoReturn

from jinja2 import TemplateError, meta, nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mmhash.engines.releases import is_since
from mmhash.errors import InputValueError, LimitError
from mmhash.prompts.content_format import iterates_content, iterates_member
from mmhash.prompts.limits import MAX_TEXT
from mmhash.prompts.section import UnknownModelError

ContentFormat = Literal["string", "openai"]

OWN_ARGUMENTS = frozenset({"chat_template", "messages", "tools"})
"""Variables that the engine sets. A request may not use these names."""

NOT_PASSED = frozenset(
    "conversation chat_template tokenize padding truncation max_length return_tensors "  # noqa: SIM905
    "return_dict return_assistant_tokens_mask tokenizer_kwargs".split()
)
"""Arguments of transformers' apply_chat_template that never reach the template."""

# Marks the end of a message that the model is to continue.
_TAG = "CONTINUE_FINAL_MESSAGE_TAG "

# The text that a probe looks for in a template's output.
_SENTINEL = "__sglang_inline_system_sentinel__"

# What a template can raise: all of Python's errors for a wrong or too deeply nested value.
_FAILURES = (
    TemplateError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)


class TemplateRenderError(InputValueError):
    """A chat template refuses a request, or fails on it."""


class _Generation(Extension):
    """The tag `generation`, which marks the assistant's text and renders nothing."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse the tag as a macro call, to keep assignments inside local."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_text_of")
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _text_of(self, caller: Callable[[], str]) -> str:
        return caller()


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)  # noqa: DTZ005  (engines use local time)


def _new_environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, LoopControlExtension]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    return environment


_ENVIRONMENT = _new_environment()


class ChatTemplate:
    """A compiled template. Threads may share it."""

    def __init__(self, source: str) -> None:
        """Compile a template. Raise UnknownModelError if the text is not a template."""
        self.source = source
        try:
            tree = _ENVIRONMENT.parse(source)
            self.variables = frozenset(meta.find_undeclared_variables(tree))
            # Whether the engines find a loop over the content of a message.
            self._found_by_vllm = {
                since_0_30: iterates_content(tree, binds_parameters=since_0_30)
                for since_0_30 in (False, True)
            }
            self._found_by_sglang = iterates_member(tree, ["message"])
            self._found_since_0_5_1 = iterates_member(tree, ["msg", "m"])
            self._template = _ENVIRONMENT.from_string(tree)
            # Every rendering copies the globals, and a plain dict copies faster than jinja's chain
            # of two.
            self._template.globals = dict(self._template.globals)
        except _FAILURES as error:
            raise UnknownModelError(f"the chat template is not usable: {_reason(error)}") from error

    def content_format(self, engine: str, release: str) -> ContentFormat:
        """Return the form of message contents that a release of vLLM or SGLang chooses."""
        if engine != "sglang":
            found = self._found_by_vllm[is_since(release, "0.30")]
        else:
            found = (
                self._found_by_sglang
                or (is_since(release, "0.5.1") and self._found_since_0_5_1)
                or (is_since(release, "0.5.3") and self._mentions_media)
            )
        return "openai" if found else "string"

    @cached_property
    def refuses_inline_system(self) -> bool:
        """True if the template fails on vLLM's probe: a system message after other messages."""
        return self._inline_system is None

    @cached_property
    def drops_inline_system(self) -> bool:
        """True if the template fails on a system message after other messages, or omits it."""
        return _SENTINEL not in (self._inline_system or "")

    @cached_property
    def _inline_system(self) -> str | None:
        """The rendered probe with an inline system message, or None if the template fails on it."""
        environment = ImmutableSandboxedEnvironment(  # the engines' probe sets nothing else
            trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension]
        )
        contents = ("t", "t", _SENTINEL, "t")
        messages = [
            {"role": role, "content": content}
            for role, content in zip(("system", "user") * 2, contents, strict=True)
        ]
        try:
            template = environment.from_string(self.source)
            return template.render(messages=messages, add_generation_prompt=False)
        except _FAILURES:
            return None

    @cached_property
    def _mentions_media(self) -> bool:
        return any(word in self.source for word in ("image", "audio", "video", "vision"))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        /,
        *,
        continue_final_message: bool = False,
        **variables: Any,
    ) -> str:
        """Return the text of a conversation. Raise TemplateRenderError if the template fails."""
        if not continue_final_message:
            return self._render({"messages": messages, **variables})
        marked, final = _mark_final(messages)
        text = self._render({"messages": marked, **variables})
        tag = _TAG.strip()
        if final.strip() not in text or tag not in text:
            raise TemplateRenderError("the chat template does not show the message to continue")
        start = text.rindex(tag)
        kept = text[:start]
        return kept if text[start : start + len(_TAG)] == _TAG else kept.rstrip()

    def _render(self, variables: dict[str, Any]) -> str:
        parts, size = [], 0
        try:
            for part in self._template.generate(variables):
                parts.append(part)
                size += len(part)
                if size > MAX_TEXT:
                    raise LimitError(
                        f"the chat template's output is longer than {MAX_TEXT} characters"
                    )
        except _FAILURES as error:
            raise TemplateRenderError(f"the chat template failed: {_reason(error)}") from error
        return "".join(parts)


@lru_cache(64)  # templates come from operators, who have few
def compiled(source: str) -> ChatTemplate:
    """Return the template with this source. Raise UnknownModelError if it is not a template."""
    return ChatTemplate(source)


def _mark_final(messages: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], str]:
    """Return the messages with a mark after the final message's text, and that text."""
    last = copy.deepcopy(dict(messages[-1]))
    final = last.get("content")
    if isinstance(final, list):
        texts = [part for part in final if isinstance(part, dict) and "text" in part]
        if texts:
            final = texts[-1]["text"]
            texts[-1]["text"] = f"{final}{_TAG}"
    elif isinstance(final, str):
        last["content"] = f"{final}{_TAG}"
    if not isinstance(final, str):
        raise TemplateRenderError("continue_final_message: the final message has no text")
    return [*messages[:-1], last], final


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:400]}"
