"""Parse a worker in the settings: `URL,events=…,replay=…,engine=…`.

The service's settings import this module through the gateway's settings. To keep the start fast, it
imports the engines and numpy only for a worker that names its engine.
"""

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import httpx
import msgspec

if TYPE_CHECKING:
    from mmhash.engines.engine import Server

_ENDPOINT = re.compile(
    r"tcp://\[?(?P<host>[^\s,/*]+?)\]?:(?P<port>\d{1,5})|ipc://[^\s,]+", re.ASCII
)

MAX_RANKS = 256
"""The KV index's limit, repeated here because importing it would import pyzmq."""


class EngineSpec(NamedTuple):
    """A worker's engine, with all settings that determine the names of blocks."""

    name: str = ""
    """The engine and its release, such as vllm@0.32.0, or empty to ask the worker."""
    block_size: int | None = None
    block_algorithm: str | None = None
    seed: str | None = None
    server: "Server" = "python"
    """For SGLang: "rust" with SGLANG_RUST_SERVER=1, "mmhash" with the plugin's keys."""
    mm_hasher_algorithm: "Literal['blake3', 'sha256']" = "blake3"
    """vLLM's --mm-hasher-algorithm, or VLLM_MM_HASHER_ALGORITHM."""
    model_id: str | None = None
    """The worker's own name for the model (/v1/models), a part of vLLM's names of media."""
    by_tenant: bool = False
    """True if the plugin has the tenants' secrets. A tag then tells it a request's tenant."""

    @property
    def tokens_per_block(self) -> int:
        """The number of tokens in a block or page: the engine's default, unless it is set."""
        from mmhash.prompts.planner import BLOCK_SIZES  # noqa: PLC0415  (see above)

        return self.block_size or BLOCK_SIZES.get(self.name.partition("@")[0], 1)

    def plan_options(self) -> dict[str, Any]:
        """Return the plan options for this engine: all fields except its name."""
        options = self._asdict()
        del options["name"], options["by_tenant"]
        return options


class WorkerSpec(NamedTuple):
    """A worker's address, KV events and engine."""

    url: str
    engine: EngineSpec = EngineSpec()
    events: str | None = None
    replay: str | None = None
    ranks: int | None = None
    """The number of data-parallel ranks, which publish at consecutive ports."""


class _Members(msgspec.Struct, forbid_unknown_fields=True):
    """What may follow a worker's URL."""

    events: str | None = None
    replay: str | None = None
    engine: str = ""
    block_size: Annotated[int, msgspec.Meta(ge=1, lt=1_000_000)] | None = None
    block_algorithm: str | None = None
    seed: str | None = None
    server: Literal["python", "rust", "mmhash"] = "python"
    mm_hasher_algorithm: Literal["blake3", "sha256"] = "blake3"
    ranks: Annotated[int, msgspec.Meta(ge=1, le=MAX_RANKS)] | None = None


_FORM = f"a worker must be URL,{','.join(f'{name}=…' for name in _Members.__struct_fields__)}"


def parse_worker(text: str) -> WorkerSpec:
    """Parse `URL,events=…,replay=…,engine=…`, or raise ValueError."""
    url, *members = text.strip().split(",")
    given: dict[str, str] = {}
    for member in members:
        name, sign, value = member.strip().partition("=")
        if not sign or name in given:
            raise ValueError(_FORM)
        given[name] = value
    try:
        named = msgspec.convert(given, _Members, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"{_FORM}: {error}") from None
    if named.replay and not named.events:
        raise ValueError("a worker with replay needs events")
    for name, endpoint in (("events", named.events), ("replay", named.replay)):
        if endpoint is not None and not _is_endpoint(endpoint, named.ranks or 1):
            raise ValueError(f"{name} of a worker must be tcp://HOST:PORT or ipc://PATH")
    engine = EngineSpec(
        named.engine,
        named.block_size,
        named.block_algorithm,
        named.seed,
        named.server,
        named.mm_hasher_algorithm,
    )
    if engine.name:
        check_engine(engine, has_events=named.events is not None)
    return WorkerSpec(_checked_url(url), engine, named.events, named.replay, named.ranks)


def endpoint_of(url: str) -> str | None:
    """Return the IP:PORT of a URL, or None if its host is a name."""
    parsed = httpx.URL(url)
    try:
        address = ip_address(parsed.host)
    except ValueError:
        return None
    host = f"[{address}]" if address.version == 6 else str(address)
    return f"{host}:{parsed.port or (443 if parsed.scheme == 'https' else 80)}"


def check_engine(engine: EngineSpec, *, has_events: bool) -> None:
    """Refuse an engine for which no prompt could be planned.

    Either its release is unknown, or these options cannot name its blocks.
    """
    from mmhash.engines.engine import BlockOptions, Prompt  # noqa: PLC0415  (see above)
    from mmhash.engines.registry import find  # noqa: PLC0415

    found, release = find(engine.name)
    found.names_by_file(engine.server, release)  # raises for a server that the engine lacks
    if has_events or engine.block_algorithm or engine.seed:
        options = BlockOptions(block_algorithm=engine.block_algorithm, seed=engine.seed)
        prompt = Prompt([0], 1, options=options)
        found.prompt_blocks(prompt, release)


def check_endpoints_of_name(spec: WorkerSpec) -> None:
    """Refuse events or replay at a host other than the URL's: all addresses would share it."""
    name = httpx.URL(spec.url).host
    for endpoint in filter(None, (spec.events, spec.replay)):
        found = _ENDPOINT.fullmatch(endpoint)
        if found is None or (found["host"] or "").lower() != name:
            raise ValueError("events and replay of worker_dns must name the host of its URL")


def _is_endpoint(text: str, ranks: int) -> bool:
    """Return True if clients can connect to the endpoints of all ranks. `*` is for servers only."""
    found = _ENDPOINT.fullmatch(text)
    if found is None or found["port"] is None:
        return found is not None
    return 1 <= int(found["port"]) <= 65536 - ranks


def _checked_url(text: str) -> str:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        raise ValueError("a worker must begin with its URL") from None
    try:
        url.host.encode("idna")  # as every connection does
    except UnicodeError:
        raise ValueError("the host of a worker's URL is not a valid name") from None
    is_port_valid = url.port is None or 0 < url.port < 65536
    if (
        url.scheme not in {"http", "https"}
        or not url.host
        or url.query
        or url.fragment
        or not is_port_valid
    ):
        raise ValueError("a worker's URL must be http(s)://HOST:PORT")
    if url.path.rstrip("/").endswith("/v1"):
        raise ValueError("a worker's URL must be the server's address without /v1")
    if url.userinfo:
        raise ValueError("a worker's URL must not have credentials: use worker_api_key")
    # http://a and HTTP://A:80 are one worker. Parsing a second time gives a lower-case scheme.
    return str(httpx.URL(str(url))).rstrip("/")
