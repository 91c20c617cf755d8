"""A model whose prompts can be planned: its files, and its family for each engine."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Unpack

from mmhash.engines import registry
from mmhash.engines.engine import Engine
from mmhash.errors import InputTypeError, InputValueError
from mmhash.prompts.families import registry as families
from mmhash.prompts.families.family import Family
from mmhash.prompts.files import ModelFiles
from mmhash.prompts.limits import MAX_ITEMS
from mmhash.prompts.loading import read_directory
from mmhash.prompts.options import PlanOptions, complete
from mmhash.prompts.plan import Plan
from mmhash.prompts.planner import BLOCK_SIZES, Planner
from mmhash.requests import Document, RequestError, form_of_path, read_for


class Model:
    """A model whose prompts can be planned. Threads may share it."""

    def __init__(self, files: ModelFiles) -> None:
        self.files = files
        self._families: dict[tuple[str, str], Family] = {}
        self._lock = Lock()
        self.family("", "")  # refuses an unknown model

    def __repr__(self) -> str:
        return f"<Model {self.files.model_type}>"

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
        return self.open_planner(found, release, document, complete(**options)).plan()

    def open_planner(
        self, engine: Engine, release: str, document: Document, options: PlanOptions
    ) -> Planner:
        """Open a request for planning.

        Raise an error if the engine may read the request differently.
        """
        if engine.name not in BLOCK_SIZES:
            known = ", ".join(BLOCK_SIZES)
            raise InputValueError(f"mmhash has no plans for {engine.name}: it plans for {known}")
        request = read_for(document, engine, release)
        if request.unclear is not None:
            raise request.unclear
        if len(request.places) > MAX_ITEMS:
            raise InputValueError(f"a request must have at most {MAX_ITEMS} items")
        return Planner(self.family(engine.name, release), request, options)

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
                family = families.find(self.files, engine, release)
                self._families[engine, release] = family
            return family


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
