"""Settings of the gateway: arguments or environment variables (docs/gateway.md).

The gateway also uses the service's settings: address, limits, memo, tenants.
"""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, FilePath, SecretStr, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from mmhash.arguments import header_value
from mmhash_service.base_settings import SourcedSettings
from mmhash_service.gateway.policy import Policy
from mmhash_service.gateway.worker_spec import (
    check_endpoints_of_name,
    parse_worker,
)


class GatewaySettings(SourcedSettings):
    """The settings of a gateway."""

    model_config = SettingsConfigDict(env_prefix="MMHASH_GATEWAY_")
    page = "docs/gateway.md"
    config_variable = "MMHASH_CONFIG"
    config_table = "gateway"

    worker_list: tuple[str, ...] = Field(
        default=(),
        description="The workers: "
        "`URL,events=tcp://HOST:PORT,replay=tcp://HOST:PORT,engine=vllm@0.32.0,block_size=16`. "
        "Only the URL is required; see [above](#workers).",
    )
    worker_dns: str | None = Field(
        default=None,
        description="A worker as in worker_list. Every address of its host name becomes a "
        "worker: name a headless service of Kubernetes, for example.",
    )
    worker_file: FilePath | None = Field(
        default=None,
        description="A file with one worker per line, as in worker_list. `#` begins a comment.",
    )
    policy: Policy = Field(
        default="longest-prefix",
        description="How to choose a worker: `longest-prefix`, `least-load`, `round-robin` or "
        "`consistent-hash`.",
    )
    hashes: Literal["engine", "key"] = Field(
        default="engine",
        description="`engine`: forward requests unchanged to vLLM 0.27 and newer, which names "
        "images by their files. `key`: insert mmhash's keys into every request. "
        "Tenants, tags, and images whose name the gateway cannot compute always get "
        "keys.",
    )
    health_interval_s: float = Field(
        default=5.0,
        gt=0,
        le=3600,
        description="How often, in seconds, to probe each worker's /health, to look up worker_dns, "
        "and to read worker_file.",
    )
    health_timeout_s: float = Field(
        default=5.0,
        gt=0,
        le=3600,
        description="How many seconds a worker has to answer a probe or accept a connection.",
    )
    worker_timeout_s: float = Field(
        default=600.0,
        gt=0,
        le=24 * 3600,
        description="How many seconds a worker may send nothing, before its response or within it.",
    )
    worker_api_key: SecretStr | None = Field(
        default=None,
        description="The workers' API key, sent instead of the client's Authorization.",
    )
    route_header: bool = Field(
        default=False,
        description="Name the route in each response, as the access log does: `X-Mmhash-Route: "
        "worker=URL; how=planned; prompt_tokens=512; matched_tokens=496`.",
    )

    picker_tls: Path | None = Field(
        default=None,
        description="The folder with the picker's certificate chain and its key, tls.crt and "
        "tls.key, as Kubernetes mounts a Secret. Without it, Envoy connects without TLS.",
    )

    @property
    def authorization(self) -> list[tuple[bytes, bytes]]:
        """The header with the workers' API key, or no header."""
        if self.worker_api_key is None:
            return []
        return [(b"authorization", b"Bearer " + _key_value(self.worker_api_key))]

    @property
    def has_workers(self) -> bool:
        """True if any source of workers is set."""
        return bool(self.worker_list or self.worker_dns or self.worker_file)

    @field_validator("worker_list")
    @classmethod
    def _check_list(cls, specs: tuple[str, ...]) -> tuple[str, ...]:
        urls: set[str] = set()
        for number, spec in enumerate(specs, 1):
            try:
                url = parse_worker(spec).url
            except ValueError as error:
                raise ValueError(f"worker {number}: {error}") from error
            if url in urls:
                raise ValueError(f"worker {number}: two workers have the same URL")
            urls.add(url)
        return specs

    @field_validator("worker_dns")
    @classmethod
    def _check_dns(cls, spec: str | None) -> str | None:
        if spec is not None:
            check_endpoints_of_name(parse_worker(spec))
        return spec

    @field_validator("worker_api_key")
    @classmethod
    def _check_api_key(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None:
            _key_value(key)
        return key

    @field_validator("picker_tls")
    @classmethod
    def _check_tls(cls, folder: Path | None) -> Path | None:
        for name in ("tls.crt", "tls.key"):
            if folder is not None and not (folder / name).is_file():
                raise ValueError(f"the folder has no file {name}")
        return folder

    @model_validator(mode="after")
    def _check_sources(self) -> Self:
        if [bool(self.worker_list), bool(self.worker_dns), bool(self.worker_file)].count(True) > 1:
            raise ValueError("set only one of worker_list, worker_dns and worker_file")
        return self


def _key_value(key: SecretStr) -> bytes:
    return header_value("worker_api_key", key.get_secret_value())
