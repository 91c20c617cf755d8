"""The models of the setting `models`, loaded at the start and again on a reload."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from mmhash.errors import MMHashError
from mmhash_service.bodies.validation import unknown_name
from mmhash_service.problems.problem import Problem
from mmhash_service.settings import ModelSource
from mmhash_service.telemetry import metrics

if TYPE_CHECKING:
    from mmhash.prompts import Model

logger = logging.getLogger(__name__)


class ModelError(MMHashError):
    """A model of the settings cannot be loaded."""


class Models:
    """The models by name. A reload replaces each as a whole."""

    def __init__(self, sources: Mapping[str, ModelSource]) -> None:
        """Load the models, or raise ModelError for the first that fails."""
        self._models = {name: _load(name, source) for name, source in sources.items()}

    def count_as_loaded(self) -> None:
        """Mark the models as loaded: the parent loaded them before the fork."""
        for name in self._models:
            _declare(name)
            metrics.MODEL_LOADS.labels(name, "loaded").inc()

    @property
    def names(self) -> list[str]:
        """The names of the models."""
        return list(self._models)

    def get(self, name: str) -> "Model | None":
        """Return the model with this name, or None."""
        return self._models.get(name)

    def find(self, name: str) -> "Model":
        """Return the model with this name, or raise the problem `unknown-model`."""
        model = self._models.get(name)
        if model is None:
            raise Problem("unknown-model", reason=unknown_name(name, self._models, "model"))
        return model

    def name_for(self, requested: str) -> str:
        """Return the name of the model for a worker's request. A single model has any name."""
        return next(iter(self._models)) if len(self._models) == 1 else requested

    def reload(self, sources: Mapping[str, ModelSource]) -> None:
        """Load all models again. If one fails to load, keep the old one. Run this in a thread."""
        for name, source in sources.items():
            try:
                self._models[name] = _load(name, source)
            except ModelError as error:
                is_old = name in self._models
                result = "the old model stays in use" if is_old else "its requests have no plan"
                logger.error("%s: %s", error, result)  # noqa: TRY400
            else:
                logger.info("reloaded the model %s", name)
        for name in self._models.keys() - sources.keys():
            del self._models[name]
            logger.info("removed the model %s", name)


def _declare(name: str) -> None:
    """Create a model's series at 0, or Prometheus's increase() would miss the first failure."""
    for result in ("loaded", "failed"):
        metrics.MODEL_LOADS.labels(name, result)


def _load(name: str, source: ModelSource) -> "Model":
    _declare(name)
    from mmhash.prompts import (  # noqa: PLC0415  (slow: it imports tokenizers and jinja2)
        Model,
        UnknownModelError,
    )

    try:
        model = Model.load(
            source.path,
            unchecked=source.unchecked,
            trust_remote_code=source.trust_remote_code,
        )
        for with_tools in (False, True):
            # Compile the templates now: the first chat would block the event loop of its process.
            with suppress(UnknownModelError):  # without a template, only chats have no plan
                model.files.template(None, with_tools=with_tools)
    except (MMHashError, OSError) as error:
        metrics.MODEL_LOADS.labels(name, "failed").inc()
        raise ModelError(f"models: {name} cannot be planned: {error}") from error
    metrics.MODEL_LOADS.labels(name, "loaded").inc()
    return model
