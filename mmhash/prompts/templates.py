"""A model's chat template: parsed once, and rendered as transformers and the engines render it."""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, NamedTuple, NoReturn

from jinja2 import TemplateError, meta, nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from mmhash.engines.releases import is_since
from mmhash.errors import InputValueError, LimitError
from mmhash.prompts.content_format import iterates_content, iterates_member
from mmhash.prompts.files import UnknownModelError

ContentFormat = Literal["string", "openai"]

MAX_TEXT = 4 << 20
"""The characters of the longest prompt: a million tokens of English."""

OWN_ARGUMENTS = frozenset({"chat_template", "messages", "tools"})
"""Variables that the engine sets: a request or a model's tokens with these names are refused."""

NOT_PASSED = frozenset(
    "conversation chat_template tokenize padding truncation max_length return_tensors "  # noqa: SIM905
    "return_dict return_assistant_tokens_mask tokenizer_kwargs".split()
)
"""Arguments of transformers' apply_chat_template that it does not pass to a template."""

# Marks the end of a message that is continued.
_TAG = "CONTINUE_FINAL_MESSAGE_TAG "

# The text by which a probe finds a message that a template shows.
_SENTINEL = "__sglang_inline_system_sentinel__"

# What foreign code can raise: everything that Python raises for a wrong value, or too deep a one.
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
    """A chat template refuses a request, or fails at it."""


class _Generation(Extension):
    """The tag `generation`, which marks what the assistant wrote. It changes no text."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse the tag as a call of a macro: assignments in it stay in it."""
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
    return datetime.now().strftime(pattern)  # noqa: DTZ005  (as the engines: local time)


def _new_environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, LoopControlExtension]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    return environment


_ENVIRONMENT = _new_environment()


class _ContentLoops(NamedTuple):
    """The loops over messages' contents that engines find in a template."""

    of_vllm: bool
    of_older_vllm: bool
    of_message: bool
    of_msg: bool

    @classmethod
    def find(cls, tree: nodes.Template) -> "_ContentLoops":
        """Return those of a template."""
        return cls(
            iterates_content(tree, binds_parameters=True),
            iterates_content(tree, binds_parameters=False),
            iterates_member(tree, ["message"]),
            iterates_member(tree, ["msg", "m"]),
        )


class ChatTemplate:
    """A template with the variables that it reads. Threads may share it."""

    def __init__(self, source: str) -> None:
        """Compile a template; a text that is no template is an UnknownModelError."""
        self.source = source
        try:
            tree = _ENVIRONMENT.parse(source)
            self.variables = frozenset(meta.find_undeclared_variables(tree))
            self._content_loops = _ContentLoops.find(tree)
            self._template = _ENVIRONMENT.from_string(tree)
            # Each rendering copies them; a plain dict is copied faster than jinja's chain of two.
            self._template.globals = dict(self._template.globals)
        except _FAILURES as error:
            raise UnknownModelError(f"the chat template is not usable: {_reason(error)}") from error

    def content_format(self, engine: str, release: str) -> ContentFormat:
        """Return the form of messages' contents that a release of vLLM or SGLang chooses."""
        loops = self._content_loops
        if engine != "sglang":
            found = loops.of_vllm if is_since(release, "0.30") else loops.of_older_vllm
        elif is_since(release, "0.5.3") and self._mentions_media:
            found = True
        else:
            found = loops.of_message or (is_since(release, "0.5.1") and loops.of_msg)
        return "openai" if found else "string"

    @cached_property
    def refuses_inline_system(self) -> bool:
        """True if vLLM's probe of a template with a system message among the others fails."""
        return self._inline_system is None

    @cached_property
    def drops_inline_system(self) -> bool:
        """True if the template fails with a system message among the others, or leaves it out."""
        return _SENTINEL not in (self._inline_system or "")

    @cached_property
    def _inline_system(self) -> str | None:
        """The text of such messages as the engines' probe gets it, None if it fails."""
        environment = ImmutableSandboxedEnvironment(  # the engines' probe knows nothing else
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
        continue_final_message: bool | str = False,
        **variables: Any,
    ) -> str:
        """Return the text of a conversation; a template that fails is a TemplateRenderError."""
        if not continue_final_message:
            return self._render({"messages": messages, **variables})
        member = continue_final_message if isinstance(continue_final_message, str) else "content"
        marked, final = _mark_final(messages, member)
        text = self._render({"messages": marked, **variables})
        tag = _TAG.strip()
        if final.strip() not in text or tag not in text:
            raise TemplateRenderError("the chat template leaves out the message to continue")
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
                    raise LimitError(f"the chat template makes more than {MAX_TEXT} characters")
        except _FAILURES as error:
            raise TemplateRenderError(f"the chat template failed: {_reason(error)}") from error
        return "".join(parts)


def _mark_final(
    messages: Sequence[Mapping[str, Any]], member: str
) -> tuple[list[Mapping[str, Any]], str]:
    """Return the messages with a mark after the final one's text, and that text."""
    last = copy.deepcopy(dict(messages[-1]))
    final = last.get(member)
    if isinstance(final, list):
        texts = [part for part in final if isinstance(part, dict) and "text" in part]
        if texts:
            final = texts[-1]["text"]
            texts[-1]["text"] = f"{final}{_TAG}"
    elif isinstance(final, str):
        last[member] = f"{final}{_TAG}"
    if not isinstance(final, str):
        raise TemplateRenderError("continue_final_message: the final message has no text")
    return [*messages[:-1], last], final


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:400]}"
