"""A model's directory: its tokenizer, its templates and its family, shared by all plans."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, Unpack

from mmhash.arguments import check_str
from mmhash.engines import registry
from mmhash.errors import InputTypeError, InputValueError, LimitError
from mmhash.prompts.families import registry as families
from mmhash.prompts.families.family import Family
from mmhash.prompts.files import UnknownModelError
from mmhash.prompts.loading import ModelDirectory, read_directory
from mmhash.prompts.options import PlanOptions, complete
from mmhash.prompts.plan import Plan
from mmhash.prompts.planner import open_planner
from mmhash.prompts.templates import MAX_TEXT, ChatTemplate
from mmhash.requests import Document, RequestError, form_of_path

# Templates beyond the model's own come from the operator, who has only a few.
_MAX_TEMPLATES = 8


class Model:
    """A model whose prompts can be planned. Threads may share it."""

    def __init__(self, directory: ModelDirectory) -> None:
        self.files = directory.files
        self.encoder = directory.encoder
        self.special_tokens = directory.special_tokens
        """The texts of the tokens that templates read by name."""
        self._named_templates = {False: directory.templates, True: directory.tool_templates}
        self._families: dict[tuple[str, str], Family] = {}
        self._templates: dict[str, ChatTemplate] = {}
        self._lock = Lock()
        self.family("", "")  # refuses an unknown model

    def __repr__(self) -> str:
        return f"<Model {self.model_type}>"

    @classmethod
    def load(
        cls, directory: str | Path, *, unchecked: bool = False, trust_remote_code: bool = False
    ) -> "Model":
        """Read a model's directory. Raise UnknownModelError if mmhash cannot plan the model.

        Args:
            directory: The directory with `config.json` and `tokenizer.json`.
            unchecked: Plan the model even if nobody has compared its processor with the engine.
            trust_remote_code: Run the processor's code from the model's directory.
        """
        if not isinstance(directory, (str, os.PathLike)):
            kind = type(directory).__name__
            raise InputTypeError(f"directory must be a str or a pathlib.Path, not {kind}")
        return cls(
            read_directory(
                Path(directory), unchecked=unchecked, trust_remote_code=trust_remote_code
            )
        )

    def plan(
        self,
        request: Mapping[str, Any] | bytes | str,
        engine: str,
        *,
        path: str | None = None,
        **options: Unpack[PlanOptions],
    ) -> Plan:
        """Return the plan of a request for an engine.

        Args:
            request: A request for an engine, in any form of `mmhash.requests.PATHS`.
            engine: The engine and its release, such as `"vllm@0.32.0"`.
            path: The path that the request is for, such as `"/generate"`. Without a path, a request
                with `messages` is a chat request. A request with `prompt` is a completion, and with
                `input` a Responses request. Any other is native.
            **options: The members of `mmhash.prompts.PlanOptions`.
        """
        found, release = registry.find(engine)
        document = Document(_text_of(request), form_of_path(path))
        return open_planner(self, found, release, document, complete(**options)).plan()

    @property
    def model_type(self) -> str:
        """The `model_type` of config.json."""
        return str(self.files.config.values.get("model_type"))

    @property
    def max_model_len(self) -> int:
        """The largest number of tokens that the model's configuration allows."""
        config = self.files.config
        text = config.section("text_config")
        holder = text if "max_position_embeddings" in text else config
        return holder.get("max_position_embeddings", int)

    def family(self, engine: str, release: str) -> Family:
        """Return the model's family, configured for a release of an engine."""
        with self._lock:
            family = self._families.get((engine, release))
            if family is None:
                family = families.find(replace(self.files, engine=engine, release=release))
                self._families[engine, release] = family
            return family

    def template(self, source: str | None, *, with_tools: bool) -> ChatTemplate:
        """Return the template with this source, or the model's own.

        Each source is compiled once.
        """
        if source is None:
            source = self._own_template(with_tools=with_tools)
        with self._lock:
            template = self._templates.get(source)
        if template is None:
            template = ChatTemplate(source)  # slow, so not under the lock
            with self._lock:
                if len(self._templates) >= _MAX_TEMPLATES:
                    self._templates.clear()
                self._templates[source] = template
        return template

    def _own_template(self, *, with_tools: bool) -> str:
        named = self._named_templates[with_tools]
        source = named.get("tool_use") if with_tools else None
        source = source or named.get("default")
        if source is None:
            raise UnknownModelError("the model has no chat template: pass one as chat_template")
        return source

    def encode(
        self, text: str, *, add_special_tokens: bool, tenant: bytes | None = None
    ) -> list[int]:
        """Return the token ids of a tenant's text."""
        if len(check_str("text", text)) > MAX_TEXT:
            raise LimitError(f"the text of a prompt must have at most {MAX_TEXT} characters")
        return self.encoder.encode(text, add_special_tokens=add_special_tokens, tenant=tenant)


def _text_of(request: Mapping[str, Any] | bytes | str) -> bytes:
    """Return a request as JSON."""
    if isinstance(request, Mapping):
        try:
            request = json.dumps(request)  # spells numbers as most clients do
        except (TypeError, ValueError, RecursionError) as error:
            raise InputValueError(f"a request must be a JSON object: {str(error)[:200]}") from error
    if not isinstance(request, (bytes, str)):
        kind = type(request).__name__
        raise InputTypeError(f"a request must be a dict, or JSON as str or bytes, not {kind}")
    try:
        return request.encode() if isinstance(request, str) else request
    except UnicodeEncodeError as error:
        raise RequestError("is not UTF-8 text") from error
