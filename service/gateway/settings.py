"""Settings of the gateway: arguments or environment variables (docs/gateway.md).

They come beside the service's settings, which the gateway uses too: address, limits, memo, tenants.

Those import this module to know its names. So it imports the engines only for a worker that names
its engine: with numpy they take 0.1 s of CPU.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import httpx
from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from mmhash_service.gateway.policy import Policy
from mmhash_service.guard.settings import PrefixedSettings

if TYPE_CHECKING:
    from mmhash.engines.releases import Fallback

PREFIX = "MMHASH_GATEWAY_"

_ENDPOINT = re.compile(r"(tcp://[^\s,]+:\d{1,5}|ipc://[^\s,]+)", re.ASCII)
_TCP_ENDPOINT = re.compile(r"tcp://\[?(?P<host>[^\s,]+?)\]?:\d{1,5}", re.ASCII)
_MEMBERS = ("events", "replay", "engine", "block_size", "algorithm", "seed", "ranks")
_NUMBER = re.compile(r"[1-9]\d{0,5}", re.ASCII)
_MAX_SPEC = 2000
MAX_RANKS = 256


class Recipe(NamedTuple):
    """The engine of a worker, and its settings by which blocks get their names."""

    engine: str
    block_size: int | None = None
    algorithm: str | None = None
    seed: str | None = None

    @property
    def tokens_per_block(self) -> int:
        """The tokens of a block or page: the engine's default if no size is given."""
        from mmhash.prompts.planning import BLOCK_SIZES  # noqa: PLC0415  (see above)

        return self.block_size or BLOCK_SIZES.get(self.engine.partition("@")[0], 1)


class WorkerSpec(NamedTuple):
    """A worker: its address, its KV events, its engine."""

    url: str
    recipe: Recipe | None = None
    events: str | None = None
    replay: str | None = None
    ranks: int = 1
    """The data-parallel ranks, which publish at as many ports."""


class GatewaySettings(PrefixedSettings):
    """The settings of one gateway."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True
    )

    worker_list: tuple[str, ...] = Field(
        default=(),
        description="The workers: `URL,events=tcp://HOST:PORT,replay=tcp://HOST:PORT,"
        "engine=vllm@0.32.0,block_size=16`, all but the URL optional; see [above](#workers).",
    )
    worker_dns: str | None = Field(
        default=None,
        description="A worker like those of worker_list, whose host name stands for each of its "
        "addresses, such as the name of a headless service in Kubernetes.",
    )
    worker_file: Path | None = Field(
        default=None,
        description="A file with a worker in each line, like those of worker_list; `#` begins a "
        "comment.",
    )
    refresh_s: float = Field(
        default=5.0,
        gt=0,
        le=3600,
        description="Seconds between two lookups of worker_dns and two reads of worker_file.",
    )
    policy: Policy = Field(
        default="longest-prefix",
        description="The choice of a worker: `longest-prefix`, `least-load`, `round-robin` or "
        "`consistent-hash`.",
    )
    load_weight: float = Field(
        default=0.1,
        ge=0,
        le=1e6,
        description="The part of a prompt that `longest-prefix` has computed again rather than "
        "send it to a worker whose load is twice the least.",
    )
    engine_metrics: bool = Field(
        default=False,
        description="Read the running and waiting requests from the workers' /metrics too, for "
        "load that comes past this process.",
    )
    media_urls: Literal["fetch", "url", "ignore"] = Field(
        default="ignore",
        description="Media at http(s) URLs: keyed by their content, which is fetched (`fetch`: "
        "only from url_hosts), keyed by the URL (`url`: only if its content never changes), or "
        "left without a key (`ignore`).",
    )
    sign: bool = Field(
        default=False,
        description="Sign a tag for each key, because the workers run the guard: with the newest "
        "of tag_secrets.",
    )
    health_interval_s: float = Field(
        default=5.0, gt=0, le=3600, description="Seconds between two probes of a worker's /health."
    )
    health_timeout_s: float = Field(
        default=5.0, gt=0, le=3600, description="Seconds in which a worker must answer a probe."
    )
    eject_after: int = Field(
        default=3,
        ge=1,
        le=1000,
        description="Failures in a row, of probes or requests, after which a worker gets no more "
        "requests until a probe succeeds.",
    )
    connect_timeout_s: float = Field(
        default=2.0, gt=0, le=3600, description="Seconds that a connection to a worker may take."
    )
    worker_timeout_s: float = Field(
        default=600.0,
        gt=0,
        le=24 * 3600,
        description="Seconds in which a worker must send the head of its response, and then more "
        "of its body.",
    )
    worker_api_key: SecretStr | None = Field(
        default=None,
        description="The API key of the workers, sent in place of the clients' Authorization.",
    )

    def check_releases(self, engine_fallback: "Fallback | None") -> None:
        """Refuse a worker of a release that is not known: none of its requests would be planned."""
        for spec in map(parse_worker, filter(None, (*self.worker_list, self.worker_dns))):
            check_release(spec, engine_fallback)

    @property
    def authorization(self) -> list[tuple[bytes, bytes]]:
        """The header with the API key of the workers, or none."""
        if self.worker_api_key is None:
            return []
        return [(b"authorization", f"Bearer {self.worker_api_key.get_secret_value()}".encode())]

    @property
    def has_workers(self) -> bool:
        """True if a source of workers is set."""
        return bool(self.worker_list or self.worker_dns or self.worker_file)

    @field_validator("worker_list")
    @classmethod
    def _check_list(cls, specs: tuple[str, ...]) -> tuple[str, ...]:
        urls = [parse_worker(spec).url for spec in specs]
        if len(set(urls)) != len(urls):
            raise ValueError("a worker's URL is given twice")
        return specs

    @field_validator("worker_dns")
    @classmethod
    def _check_dns(cls, spec: str | None) -> str | None:
        if spec is not None:
            worker = parse_worker(spec)
            name = httpx.URL(worker.url).host
            for endpoint in filter(None, (worker.events, worker.replay)):
                found = _TCP_ENDPOINT.fullmatch(endpoint)
                if found is None or found["host"].lower() != name:
                    # One at another host would have the events of all workers.
                    raise ValueError("events and replay of worker_dns name the host of its URL")
        return spec

    @field_validator("worker_file")
    @classmethod
    def _check_file(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_file():
            raise ValueError("not a file")
        return path

    @model_validator(mode="after")
    def _check_sources(self) -> Self:
        if [bool(self.worker_list), bool(self.worker_dns), bool(self.worker_file)].count(True) > 1:
            raise ValueError("workers come from one of worker_list, worker_dns and worker_file")
        return self


def parse_worker(text: str) -> WorkerSpec:
    """Return the worker that `URL,events=…,replay=…,engine=…` names, or raise ValueError."""
    if len(text) > _MAX_SPEC:
        raise ValueError(f"a worker has at most {_MAX_SPEC} characters")
    url, *members = text.strip().split(",")
    named: dict[str, str] = {}
    for member in members:
        name, sign, value = member.strip().partition("=")
        if name not in _MEMBERS or not sign or name in named:
            raise ValueError(f"a worker is URL,{','.join(f'{one}=…' for one in _MEMBERS)}")
        named[name] = value
    for name in ("events", "replay"):
        if name in named and not _ENDPOINT.fullmatch(named[name]):
            raise ValueError(f"{name} of a worker must be tcp://HOST:PORT or ipc://PATH")
    if "replay" in named and "events" not in named:
        raise ValueError("a worker with replay needs events")
    if "events" in named and "engine" not in named:
        raise ValueError("a worker with events needs its engine, such as engine=vllm@0.32.0")
    ranks = _number(named, "ranks") or 1
    if ranks > MAX_RANKS:
        raise ValueError(f"a worker has at most {MAX_RANKS} ranks")
    return WorkerSpec(
        _checked_url(url), _recipe(named), named.get("events"), named.get("replay"), ranks
    )


def check_release(spec: WorkerSpec, engine_fallback: "Fallback | None") -> None:
    """Refuse a worker of a release that is neither known nor covered by the setting."""
    if spec.recipe is not None:
        from mmhash.engines.registry import find  # noqa: PLC0415  (see above)

        find(spec.recipe.engine, engine_fallback=engine_fallback)


def _recipe(named: dict[str, str]) -> Recipe | None:
    block_size = _number(named, "block_size")
    if "engine" not in named:
        if not named.keys().isdisjoint({"block_size", "algorithm", "seed"}):
            raise ValueError("a worker with block_size, algorithm or seed needs its engine")
        return None
    from mmhash.engines.engine import Prompt  # noqa: PLC0415  (see above)
    from mmhash.engines.registry import find  # noqa: PLC0415

    recipe = Recipe(named["engine"], block_size, named.get("algorithm"), named.get("seed"))
    # The setting engine_fallback is the service's: check_release() compares with it.
    engine, release = find(recipe.engine, engine_fallback="nearest-older")
    if not named.keys().isdisjoint({"events", "algorithm", "seed"}):
        # Without this check, the same error would keep each request from being planned.
        prompt = Prompt([0], 1, algorithm=recipe.algorithm, seed=recipe.seed)
        engine.prompt_blocks(prompt, release)
    return recipe


def _number(named: dict[str, str], name: str) -> int | None:
    if name not in named:
        return None
    if not _NUMBER.fullmatch(named[name]):
        raise ValueError(f"{name} of a worker must be a number from 1 to 999999")
    return int(named[name])


def _checked_url(text: str) -> str:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        raise ValueError("a worker begins with its URL") from None
    has_port = url.port is None or 0 < url.port < 65536
    if (
        url.scheme not in {"http", "https"}
        or not url.host
        or url.query
        or url.fragment
        or not has_port
    ):
        raise ValueError("a worker's URL must be http(s)://HOST:PORT")
    if url.path.rstrip("/").endswith("/v1"):
        raise ValueError("a worker's URL is that of its server, without /v1")
    if url.userinfo:
        raise ValueError("a worker's URL has no credentials: use worker_api_key")
    return text.rstrip("/")
