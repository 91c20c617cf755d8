"""Settings of the guard: arguments or environment variables (docs/guard.md)."""

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from mmhash_service.base_settings import HexSecret, SourcedSettings

TENANT_BY_HEADER = "@header"
"""No tenant can have this name: tenant names contain no at sign."""


class GuardSettings(SourcedSettings):
    """The settings of a guard."""

    model_config = SettingsConfigDict(env_prefix="MMHASH_GUARD_")
    page = "docs/guard.md"

    engine: str = Field(description="The engine behind the guard, such as vllm or sglang@0.5.23.")
    secrets: tuple[HexSecret, ...] = Field(
        min_length=1,
        description="The secrets that sign tags, newest first: 64 hex digits each.",
    )
    tenant: str | None = Field(
        default=None,
        min_length=1,
        description="The tenant whose tags are valid. If unset, only tags without a tenant are "
        "valid. `@header` takes the tenant from X-Mmhash-Tenant: use it only behind a "
        "gateway that sets or removes that header in every request.",
    )
    allow_peers: bool = Field(
        default=False,
        description="Let requests name peers to load caches from. Use it only behind a gateway "
        "that sets these fields itself and removes the clients' own.",
    )
    max_body_bytes: int = Field(
        default=32 << 20, ge=1, description="The longest body that the guard forwards, in bytes."
    )

    @field_validator("engine")
    @classmethod
    def _check_engine(cls, engine: str) -> str:
        from mmhash.engines.registry import parse  # noqa: PLC0415  (see guard/__init__.py)

        return parse(engine)[0]
