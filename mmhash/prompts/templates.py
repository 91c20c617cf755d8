"""A model's chat template: parsed once, rendered as transformers renders it, with bounded work."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

from jinja2 import TemplateError, meta, nodes
from jinja2.runtime import new_context

from mmhash.engines.releases import is_since
from mmhash.errors import InputValueError, LimitError
from mmhash.prompts.content_format import iterates_content, iterates_member
from mmhash.prompts.files import UnknownModelError
from mmhash.prompts.sandbox import bound_work, new_sandbox

ContentFormat = Literal["string", "openai"]

MAX_SOURCE = 128 << 10
"""The characters of the longest template: the longest known ones have 30 000."""

OWN_ARGUMENTS = frozenset({"chat_template", "messages", "tools"})
"""Variables that the engine sets: a request or a model's tokens with these names are refused."""

NOT_PASSED = frozenset(
    "conversation chat_template tokenize padding truncation max_length return_tensors "  # noqa: SIM905
    "return_dict return_assistant_tokens_mask tokenizer_kwargs".split()
)
"""Arguments of transformers' apply_chat_template that it does not pass to a template."""

# Marks the end of a message that is continued.
_TAG = "CONTINUE_FINAL_MESSAGE_TAG "

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
    """A template with the names that it reads."""

    def __init__(self, source: str) -> None:
        """Parse a template; one that is too long, or no template, is an UnknownModelError."""
        if len(source) > MAX_SOURCE:
            raise UnknownModelError(f"the chat template is longer than {MAX_SOURCE} characters")
        self.source = source
        self._sandbox = new_sandbox()
        try:
            tree = self._sandbox.parse(source)
            self.variables = frozenset(meta.find_undeclared_variables(tree))
            self._content_loops = _ContentLoops.find(tree)
            self.names = frozenset(_names(tree))
            bound_work(tree)
            # jinja2 compiles a tree as it does a text.
            self._template = self._sandbox.from_string(tree)
        except (*_FAILURES, LimitError) as error:
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
        sandbox = self._sandbox.fresh()
        try:
            context = new_context(
                sandbox, None, {}, variables, shared=False, globals=sandbox.globals, locals=None
            )
            # The generated function takes its environment as an argument: here one for each call.
            render: Callable[..., Iterable[str]] = self._template.root_render_func
            return sandbox.concat(render(context, environment=sandbox))
        except _FAILURES as error:
            raise TemplateRenderError(f"the chat template failed: {_reason(error)}") from error


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


def _names(tree: nodes.Template) -> set[str]:
    """Return the constant names by which the template reads members."""
    names = {node.attr for node in tree.find_all(nodes.Getattr)}
    values = (node.value for node in tree.find_all(nodes.Const))
    return names | {value for value in values if isinstance(value, str)}


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:400]}"
