"""A model's directory: its tokenizer, its templates and its family, shared by all plans."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from mmhash.engines import registry
from mmhash.errors import LimitError
from mmhash.prompts.families import registry as families
from mmhash.prompts.families.family import Family, Modality, Placeholder
from mmhash.prompts.files import ModelFiles, UnknownModelError
from mmhash.prompts.loading import ModelDirectory, read_directory
from mmhash.prompts.options import PlanOptions
from mmhash.prompts.plan import Plan
from mmhash.prompts.planning import open_plan
from mmhash.prompts.sandbox import MAX_TEXT
from mmhash.prompts.templates import ChatTemplate

# Templates that are not the model's own come from the operator, who has few.
_MAX_TEMPLATES = 8


class Model:
    """A model's files, by which prompts are planned. Threads may share it."""

    def __init__(self, directory: ModelDirectory) -> None:
        self._directory = directory
        self._families: dict[tuple[str, str], Family] = {}
        self._templates: dict[str, ChatTemplate] = {}
        self._lock = Lock()
        self._placeholders = self.family("", "").placeholders()  # an unknown model is refused here

    @classmethod
    def load(cls, directory: str | Path) -> "Model":
        """Read a model's directory; a model that cannot be planned is an UnknownModelError."""
        return cls(read_directory(Path(directory)))

    def plan(self, request: Mapping[str, Any] | bytes | str, engine: str, **options: Any) -> Plan:
        """Return the plan of a request for an engine such as `vllm@0.32.0`.

        `request` is an OpenAI chat or completion, or SGLang's /generate. Options of the engine are
        `block_size`, `algorithm`, `seed`, `lora`, `lora_path`, `lookahead` and `groups`, as
        `/blocks` takes them; the `chat_template` and `content_format` that it was started with;
        and `model_id`, its name of the model, for requests with processor options. Options of the
        keys are `of` ("bytes" or "pixels"), `tenant`, and `media`: the sizes and keys of media by
        URL, or a function from a URL to them.
        """
        found, release = registry.find(engine)
        given = PlanOptions(**options)
        return open_plan(self, found, release, request).plan(given)

    @property
    def files(self) -> ModelFiles:
        """The model's settings."""
        return self._directory.files

    @property
    def special_tokens(self) -> dict[str, str]:
        """The texts of named tokens, which templates read."""
        return self._directory.special_tokens

    @property
    def has_known_expressions(self) -> bool:
        """True if a short text takes a short time: the tokenizer's expressions are known."""
        return self._directory.encoder.has_known_expressions

    def placeholders(self) -> Mapping[Modality, Placeholder]:
        """Return the placeholder of each modality that the model takes."""
        return self._placeholders

    def family(self, engine: str, release: str) -> Family:
        """Return the model's family with its settings for a release of an engine."""
        with self._lock:
            family = self._families.get((engine, release))
            if family is None:
                family = families.find(replace(self.files, engine=engine, release=release))
                self._families[engine, release] = family
            return family

    def takes_hashes(self, engine: str, release: str) -> bool:
        """Return True if the engine names items of its native requests by a caller's hashes.

        A model that cannot be planned for the engine is an UnknownModelError.
        """
        return self.family(engine, release).takes_hashes()

    def template(self, source: str | None, *, with_tools: bool) -> ChatTemplate:
        """Return the template with this source, or the model's own, compiled once."""
        if source is None:
            source = self._own_template(with_tools=with_tools)
        with self._lock:
            template = self._templates.get(source)
        if template is None:
            template = ChatTemplate(source)  # 1 to 50 ms
            with self._lock:
                if len(self._templates) >= _MAX_TEMPLATES:
                    self._templates.clear()
                self._templates[source] = template
        return template

    def _own_template(self, *, with_tools: bool) -> str:
        directory = self._directory
        named = directory.tool_templates if with_tools else directory.templates
        source = named.get("tool_use") if with_tools else None
        source = source or named.get("default")
        if source is None:
            raise UnknownModelError("the model has no chat template: give it as chat_template")
        return source

    def forget_texts(self) -> None:
        """Empty the cache of token ids."""
        self._directory.encoder.clear()

    def encode(
        self, text: str, *, add_special_tokens: bool, tenant: bytes | None = None
    ) -> list[int]:
        """Return the token ids of a text of a tenant."""
        if len(text) > MAX_TEXT:
            raise LimitError(f"the text of a prompt has at most {MAX_TEXT} characters")
        return self._directory.encoder.encode(
            text, add_special_tokens=add_special_tokens, tenant=tenant
        )
