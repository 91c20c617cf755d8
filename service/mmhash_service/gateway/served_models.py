"""Compare the models that workers list at /v1/models, to choose the workers for a request.

A worker with the wrong model, such as a new pod at an old pod's address, refuses requests at once.
Without a comparison it would look idle and attract more of them. No I/O, no clock.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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


class ServedModels:
    """The lists of models of all workers, compared with each other."""

    def __init__(self) -> None:
        self.is_one_list = True
        """True if no two workers list different models."""
        self.has_adapters = False
        """True if any worker lists a LoRA adapter."""
        self.mismatched: frozenset[str] = frozenset()
        """Workers that share no model with any other worker."""
        self._lists: dict[str, frozenset[str]] = {}

    def compare(self, workers: Iterable[Worker]) -> list[str]:
        """Compare the lists. Return the workers that have become mismatched."""
        workers = list(workers)
        self.has_adapters = any(any(worker.models.values()) for worker in workers)
        lists = {worker.url: frozenset(worker.models) for worker in workers}
        if lists == self._lists:
            return []
        before, self._lists = self._lists, lists
        self.is_one_list = len({names for names in lists.values() if names}) < 2
        self.mismatched = find_mismatched(lists)
        return [url for url in self.mismatched if lists[url] != before.get(url)]

    def of_others(self, url: str) -> frozenset[str]:
        """Return the models that all other workers list."""
        return frozenset().union(*(names for one, names in self._lists.items() if one != url))

    def workers_for(self, model: str, workers: Sequence[Worker]) -> Sequence[Worker]:
        """Return the workers that may get a request that names a model; "" is none."""
        return workers if self.is_one_list else workers_for(model, workers, self.mismatched)


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


def find_mismatched(lists: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the workers that share no model with any other worker."""
    counts = Counter(name for names in lists.values() for name in names)
    listing = [url for url, names in lists.items() if names]
    if len(listing) < 2:
        return frozenset()
    return frozenset(url for url in listing if all(counts[name] == 1 for name in lists[url]))


def workers_for(
    model: str, workers: Sequence[Worker], mismatched: Iterable[str]
) -> Sequence[Worker]:
    """Return the workers that may get a request for a model; an empty string means no model.

    A worker whose list is unknown may have any model.
    """
    listing = [worker for worker in workers if model in worker.models]
    if not listing:
        matching = [worker for worker in workers if worker.url not in mismatched]
        return matching if any(worker.models for worker in matching) else workers
    able = [worker for worker in workers if not worker.models or model in worker.models]
    if any(worker.is_healthy for worker in able):
        return able
    # Perhaps an adapter: another worker with its base model may load it.
    related = frozenset().union(*(worker.models for worker in listing))
    return [worker for worker in workers if not worker.models or worker.models.keys() & related]
