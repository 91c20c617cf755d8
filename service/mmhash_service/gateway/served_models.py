"""The models that workers list at /v1/models, and the workers for a request by its model.

A worker with another model refuses requests at once, so it would look idle and attract more of
them. No I/O, no clock.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from mmhash.requests.raw_json import PARSE_ERRORS
from mmhash_service.gateway.worker import Adapter, Worker

# Enough for 500 models of vLLM. A longer list would take the event loop too long to parse.
_MAX_LIST = 256 << 10


class _Model(msgspec.Struct):
    id: str
    root: Any = None
    parent: Any = None

    @property
    def adapter(self) -> Adapter | None:
        if isinstance(self.parent, str) and isinstance(self.root, str):
            return Adapter(self.parent, self.root)
        return None


class _ModelList(msgspec.Struct):
    data: list[_Model]


class _ModelName(msgspec.Struct):
    model: str = ""


_MODEL_LIST = msgspec.json.Decoder(_ModelList)
_MODEL_NAME = msgspec.json.Decoder(_ModelName)


def read_model_list(status: int, body: bytes) -> tuple[dict[str, Adapter | None], str | None]:
    """Read an answer to GET /v1/models: the models, and the engine's name of the base model.

    Return nothing if the answer is not a list of models.
    """
    if status != 200 or len(body) > _MAX_LIST:
        return {}, None
    try:
        listed = _MODEL_LIST.decode(body).data
    except PARSE_ERRORS:
        return {}, None
    roots = (one.root for one in listed if one.adapter is None and isinstance(one.root, str))
    return {model.id: model.adapter for model in listed}, next(roots, None)


def requested_model(body: bytes) -> str:
    """Return the model that a request names, or an empty string."""
    try:
        return _MODEL_NAME.decode(body).model
    except PARSE_ERRORS:
        return ""


def workers_for(model: str, workers: Sequence[Worker]) -> Sequence[Worker]:
    """Return the workers that may get a request for a model; an empty string means no model.

    A worker whose list is unknown may have any model.
    """
    listing = [worker for worker in workers if model in worker.models]
    if not listing:
        return workers
    able = [worker for worker in workers if not worker.models or model in worker.models]
    if any(worker.is_healthy for worker in able):
        return able
    # Perhaps an adapter: another worker with its base model may load it.
    related = frozenset().union(*(worker.models for worker in listing))
    return [worker for worker in workers if not worker.models or worker.models.keys() & related]
