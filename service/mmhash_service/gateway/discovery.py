"""Read what a worker's server says of itself: engine, KV events, models and plugin."""

import re
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from mmhash_service.gateway.worker_spec import MAX_RANKS, EngineSpec, WorkerSpec, check_engine

T = TypeVar("T")

Get = Callable[[bytes], Awaitable[tuple[int, bytes]]]
"""GET a path of the server. Return the status and the body."""

_MAX_RELEASE = 64
_SIZE = re.compile(r"[1-9]\d{0,5}", re.ASCII)

# Use only the port, and take the host from the worker's URL: a worker must not name another host.
_TCP = re.compile(r"tcp://\S*:(\d{1,5})", re.ASCII)

_CACHE_CONFIG = re.compile(rb"^vllm:cache_config_info\{([^\n]*)\}", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"\\]*)"')


class Description(NamedTuple):
    """A server's description of itself."""

    engine: EngineSpec
    events: str | None = None
    replay: str | None = None
    ranks: int = 1
    lacking: Mapping[str, str] = MappingProxyType({})
    """Why the gateway does not know a value, by the option of `--worker` that sets it."""

    @property
    def publisher(self) -> tuple[str | None, str | None, int]:
        """Where the KV events are published: events, replay, ranks."""
        return self.events, self.replay, self.ranks


class _Version(msgspec.Struct):
    version: str


class _Source(msgspec.Struct):
    endpoint: str = ""
    replay_endpoint: str | None = None


class _Publisher(msgspec.Struct):
    endpoint_port_base: int
    replay_endpoint_port_base: int | None = None
    block_size: int | None = None
    dp_size: int = 1


class _ServerInfo(_Version):
    page_size: int | None = None
    dp_size: int | None = None
    kv_events: _Publisher | None = None
    kv_events_config: str | None = None
    internal_states: list[dict[str, Any]] = []


async def describe(get: Get, host: str) -> Description | None:
    """Ask the server at a host. Return None if it is neither vLLM nor SGLang."""
    if version := _read(_Version, *await get(b"/version")):
        sources = await get(b"/kv_event_sources")
        _, metrics = await get(b"/metrics")
        return _describe_vllm(_release(version), sources, metrics, host)
    for path in (b"/server_info", b"/get_server_info"):
        if info := _read(_ServerInfo, *await get(path)):
            return _describe_sglang(info, host)
    return None


def complete(spec: WorkerSpec, said: Description | None) -> Description:
    """Complete a worker's settings with what its server says. The settings take precedence."""
    own, events = spec.engine, spec.events
    known = Description(own, events, spec.replay, spec.ranks or 1)
    if said is None:
        unknown = "the server answers neither vLLM's /version nor SGLang's /server_info"
        return known if own.name else known._replace(lacking={"engine": unknown})
    if own.name and own.name.partition("@")[0] != said.engine.name.partition("@")[0]:
        return known
    lacking = dict(said.lacking)
    given = {"events": events, "block_size": own.block_size, "block_algorithm": own.block_algorithm}
    for name in [name for name, value in given.items() if value]:
        lacking.pop(name, None)
    engine = said.engine._replace(
        name=own.name or said.engine.name,
        block_size=own.block_size or said.engine.block_size,
        block_algorithm=own.block_algorithm or said.engine.block_algorithm,
        seed=own.seed,
        server=said.engine.server if own.server == "python" else own.server,
        mm_hasher_algorithm=own.mm_hasher_algorithm,
    )
    if events is None:
        known = said._replace(ranks=spec.ranks or said.ranks)
    try:
        check_engine(engine, has_events=known.events is not None)
    except ValueError as error:
        lacking["engine"] = f"{engine.name}: {error}"
        engine = EngineSpec()
    return known._replace(engine=engine, lacking=lacking)


def _describe_vllm(
    release: str, sources: tuple[int, bytes], metrics: bytes, host: str
) -> Description:
    lacking: dict[str, str] = {}
    found = _CACHE_CONFIG.search(metrics)
    labels = dict(_LABEL.findall(found[1].decode("utf-8", "replace"))) if found else {}
    size = int(text) if _SIZE.fullmatch(text := labels.get("block_size", "")) else None
    algorithm = labels.get("prefix_caching_hash_algo")
    if size is None or algorithm is None:
        lacking["block_size"] = lacking["block_algorithm"] = "its /metrics do not state it"
    engine = EngineSpec(f"vllm@{release}", size, block_algorithm=algorithm)
    by_rank = _read(dict[int, _Source], *sources)
    if by_rank is None:
        lacking["events"] = "this release has no /kv_event_sources"
        return Description(engine, lacking=lacking)
    if not by_rank:
        lacking["events"] = "the engine publishes none: start it with --kv-events-config"
        return Description(engine, lacking=lacking)
    ranks = [by_rank[rank] for rank in sorted(by_rank)]
    events = _first_port([one.endpoint for one in ranks])
    if events is None:
        lacking["events"] = "its ranks do not publish at consecutive TCP ports"
    replay = _first_port([one.replay_endpoint or "" for one in ranks])
    return _with_ports(Description(engine, lacking=lacking), host, events, replay, len(ranks))


def _first_port(endpoints: list[str]) -> int | None:
    """Return the first rank's port, or None if the ranks do not have consecutive ports."""
    ports = [int(found[1]) for one in endpoints if (found := _TCP.fullmatch(one))]
    consecutive = list(range(ports[0], ports[0] + len(endpoints))) if ports else []
    return ports[0] if ports and ports == consecutive else None


def _describe_sglang(info: _ServerInfo, host: str) -> Description:
    is_rust = any("rust_mm_transport" in state for state in info.internal_states)
    published = info.kv_events or _publisher_of_config(info)
    size = (published and published.block_size) or info.page_size
    engine = EngineSpec(f"sglang@{_release(info)}", size, server="rust" if is_rust else "python")
    lacking: dict[str, str] = {}
    if size is None:
        lacking["block_size"] = "its /server_info does not state page_size"
    if published is None:
        lacking["events"] = "the engine publishes none over TCP: start it with --kv-events-config"
        return Description(engine, lacking=lacking)
    return _with_ports(
        Description(engine, lacking=lacking),
        host,
        published.endpoint_port_base,
        published.replay_endpoint_port_base,
        published.dp_size,
    )


def _publisher_of_config(info: _ServerInfo) -> _Publisher | None:
    """Return the publisher from the start-up options, for a release that reports only these."""
    source = _read(_Source, 200, (info.kv_events_config or "").encode())
    port = _first_port([source.endpoint]) if source else None
    if source is None or port is None:
        return None
    replay = _first_port([source.replay_endpoint or ""])
    return _Publisher(port, replay, info.page_size, info.dp_size or 1)


def _with_ports(
    description: Description, host: str, events: int | None, replay: int | None, ranks: int
) -> Description:
    if events is None or not 1 <= ranks <= MAX_RANKS:
        return description
    host = f"[{host}]" if ":" in host else host
    return description._replace(
        events=f"tcp://{host}:{events}",
        replay=None if replay is None else f"tcp://{host}:{replay}",
        ranks=ranks,
    )


def _release(version: _Version) -> str:
    return version.version.partition("+")[0][:_MAX_RELEASE]


def _read(kind: type[T], status: int, body: bytes) -> T | None:
    """Return a response as this type, or None if it is an error or has another form."""
    if status != 200:
        return None
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


# Enough for 500 models of vLLM. A longer list would take the event loop too long to parse.
_MAX_LIST = 256 << 10


class Adapter(NamedTuple):
    """A LoRA adapter as an engine lists it."""

    base: str
    """The name of its base model."""
    path: str


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


def read_model_list(status: int, body: bytes) -> tuple[dict[str, Adapter | None], str | None]:
    """Read an answer to GET /v1/models: the models, and the engine's name of the base model.

    Return nothing if the answer is not a list of models.
    """
    found = _read(_ModelList, status, body) if len(body) <= _MAX_LIST else None
    if found is None:
        return {}, None
    roots = (one.root for one in found.data if one.adapter is None and isinstance(one.root, str))
    return {model.id: model.adapter for model in found.data}, next(roots, None)


PLUGIN_PATH = b"/mmhash"
"""The path at which SGLang's server says what mmhash's plugin does."""


class _Plugin(msgspec.Struct):
    features: list[Literal["keys", "guard", "features", "tenants"]]


def read_plugin(status: int, body: bytes) -> list[str] | None:
    """Return what the plugin does in a server, or None without the plugin."""
    plugin = _read(_Plugin, status, body)
    return sorted(plugin.features) if plugin else None
