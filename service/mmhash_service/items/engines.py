"""The engines that a request names."""

import logging
from dataclasses import dataclass

from mmhash import Digest
from mmhash.engines import RequestFields
from mmhash.engines.engine import Engine
from mmhash.engines.registry import find
from mmhash.engines.releases import Fallback
from mmhash.errors import InputError
from mmhash_service.problems.problem import Problem
from mmhash_service.telemetry import metrics

logger = logging.getLogger(__name__)

# Unknown releases that the log has. Clients choose their names, so only the first are logged.
_logged: set[str] = set()
_MAX_LOGGED = 100


@dataclass(frozen=True, slots=True)
class RequestedEngine:
    """An engine as the request names it, and the known release whose recipe is used."""

    name: str
    engine: Engine
    version: str
    # The recipe, such as vllm@0.33.0, if the release is not known.
    recipe: str | None

    def name_item(self, key: Digest, options: str = "", orientation: int = 1) -> Digest:
        """Return the key by which the engine names an item under these options."""
        return self.engine.name_item(key, self.version, options=options, orientation=orientation)

    def request_fields(self, key: Digest, options: str = "", orientation: int = 1) -> RequestFields:
        """Return the fields that name an item, and the `recipe` if it is of another release."""
        named = self.name_item(key, options, orientation)
        fields = self.engine.request_fields(named, self.version)
        return fields if self.recipe is None else {**fields, "recipe": self.recipe}


def parse_engines(
    text: str | None, engine_fallback: Fallback | None
) -> tuple[RequestedEngine, ...]:
    """Return the engines in `sglang@0.5.23,vllm`."""
    return tuple(find_engine(name, engine_fallback) for name in text.split(",")) if text else ()


def find_engine(name: str, engine_fallback: Fallback | None) -> RequestedEngine:
    """Return the engine and release that `sglang@0.5.23` names, or its fallback."""
    try:
        engine, version = find(name, engine_fallback=engine_fallback)
    except InputError as error:
        raise Problem("unknown-engine", reason=str(error)) from error
    release = name.partition("@")[2]
    if release in {"", version}:
        return RequestedEngine(name, engine, version, None)
    recipe = f"{engine.name}@{version}"
    metrics.ENGINE_FALLBACKS.labels(engine.name, recipe).inc()
    if name not in _logged and len(_logged) < _MAX_LOGGED:
        _logged.add(name)
        logger.warning("%s is not known: the recipe of %s is used instead", name, recipe)
    return RequestedEngine(name, engine, version, recipe)
