"""Settings of the service, from arguments, the environment and a TOML file (docs/settings.md).

The guard runs inside an engine and has its own settings (guard/settings.py). So has the gateway
(gateway/settings.py).
"""

import os
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    DirectoryPath,
    Field,
    PrivateAttr,
    SecretStr,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import SettingsConfigDict

from mmhash_service.base_settings import HexSecret, SourcedSettings

# A larger value is a mistake.
_MAX_TIMEOUT_S = 24 * 3600

# Pillow refuses images with more than twice its MAX_IMAGE_PIXELS, a constant of the whole process.
_PILLOW_MAX_PIXELS = 178_956_970

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
# The name by which an engine serves a model: a path, or a name such as Qwen/Qwen2-VL-7B-Instruct.
ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._/:@+-]{1,255}$")]
HexDigest = Annotated[str, StringConstraints(pattern=r"^[0-9a-fA-F]{64}$", to_lower=True)]
# An address, or the name of a host.
Host = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:-]{1,253}$")]


class ModelSource(BaseModel):
    """A model's directory, and the operator's options for the model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: DirectoryPath
    unchecked: bool = False
    trust_remote_code: bool = False
    model_id: str | None = None
    """The workers' `--model`, a part of vLLM's hashes of images. The default is `path`."""
    max_model_len: Annotated[int, Field(ge=1)] | None = None
    """The workers' `--max-model-len`. The default is what config.json allows."""

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, (str, Path)) else value


class Settings(SourcedSettings):
    """The settings of one server."""

    model_config = SettingsConfigDict(env_prefix="MMHASH_")
    page = "docs/settings.md"
    config_variable = "MMHASH_CONFIG"
    other_tables = frozenset({"gateway"})
    other_variables = frozenset(
        {  # the library reads these
            "MMHASH_CACHE_DIR",
            "MMHASH_ENGINE_API_KEY",
            "MMHASH_PLUGIN",
            "MMHASH_VECTORS",
        }
    )
    other_prefixes = ("MMHASH_GATEWAY_", "MMHASH_GUARD_")

    host: Host = Field(default="127.0.0.1", description="The address to listen on.")
    port: int = Field(
        default=8780, ge=0, le=65535, description="The port to listen on; 0 picks a free one."
    )
    uds: Path | None = Field(
        default=None,
        description="A Unix socket (mode 0600) to listen on instead of host and port.",
    )
    processes: int = Field(default=1, ge=1, le=256, description="The number of server processes.")
    grace_s: float = Field(
        default=30.0,
        gt=0,
        le=3600,
        description="How many seconds running requests have to finish after SIGTERM.",
    )
    max_body_bytes: int = Field(
        default=1 << 30,
        ge=1,
        description="The largest request body, and the largest content of a URL, in bytes.",
    )
    max_pixels: int = Field(
        default=_PILLOW_MAX_PIXELS,
        ge=1,
        le=_PILLOW_MAX_PIXELS,
        description="The most pixels that all frames of an image may have together. The default is "
        "the maximum.",
    )
    decoders: int = Field(
        default=0,
        ge=0,
        le=256,
        description="How many decoder processes each server process has. 0 gives each its share of "
        "the cores, but at most 8. An additional decoder takes only small images.",
    )
    timeout_s: float = Field(
        default=10.0,
        gt=0,
        le=_MAX_TIMEOUT_S,
        description="How many seconds one step of a request may take: waiting for a thread or "
        "decoder and using it, fetching a URL, or receiving 1024 bytes of the body. A client that "
        "does not complete a head or body, or does not read a response, is disconnected after "
        "twice as long.",
    )
    max_held_bytes: int = Field(
        default=256 << 20,
        ge=1 << 20,
        description="How many bytes of request bodies a process may hold. A streamed body counts "
        "as 256 KiB. A JSON body may take a 16th of the limit. Long responses that clients have "
        "not read may take as much again.",
    )
    cuda_ipc: bool = Field(
        default=False,
        description="Use the GPUs, and accept items in CUDA memory on the Unix socket.",
    )
    url_hosts: tuple[str, ...] = Field(
        default=(),
        description="The hosts that http(s) URLs may name: `example.org`, `*.example.org` for "
        "subdomains, `example.org:PORT` for a port other than the scheme's default. "
        "If empty, http(s) URLs are refused.",
    )
    url_networks: tuple[IPv4Network | IPv6Network, ...] = Field(
        default=(),
        description="Private networks in which the hosts of url_hosts may have addresses. All "
        "other addresses must be public.",
    )
    memo_url: SecretStr | None = Field(
        default=None,
        description="The URL of a store behind the in-memory memo: `redis://HOST:PORT/DB` or "
        "`redis+cluster://HOST:PORT`.",
    )
    models: dict[ModelName, ModelSource] = Field(
        default={},
        description="The models that can be planned: name and directory, or an object with `path`, "
        "`unchecked`, `trust_remote_code`, `model_id` and `max_model_len`.",
    )
    render_version: Literal["0.28.0", "0.30.0", "0.32.0"] = Field(
        default="0.32.0",
        description="The release of vLLM that `/render` answers as. Messages and Responses need "
        "0.32.0.",
    )
    tenants: dict[Name, HexSecret] = Field(
        default={}, description="The tenants: name and secret (64 hex digits)."
    )
    tag_secrets: tuple[HexSecret, ...] = Field(
        default=(),
        description="Secrets for signing tags, newest first, 64 hex digits each. If empty, "
        "`sign` is refused.",
    )
    api_key_digests: tuple[HexDigest, ...] = Field(
        default=(),
        description="The BLAKE3 digests of the API keys, in hex. If set, every request needs a "
        "key, except for probes and web pages.",
    )
    metrics_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="A second port at the same host, for `/metrics` only and without an API key.",
    )

    # The arguments that the settings were created with. `read_again` needs them.
    _arguments: dict[str, Any] = PrivateAttr(default_factory=dict)

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._arguments = arguments

    def read_again(self) -> Self:
        """Load the settings again: the same arguments, but the present environment and files."""
        return type(self)(**self._arguments)

    @property
    def max_json_bytes(self) -> int:
        """The largest JSON body, which is held beside the values parsed from it."""
        return self.max_held_bytes // 16

    @model_validator(mode="after")
    def _check_cuda_ipc(self) -> Self:
        if self.cuda_ipc and self.uds is None:
            raise ValueError("cuda_ipc needs uds: handles are accepted only on a Unix socket")
        return self

    @model_validator(mode="after")
    def _check_protection(self) -> Self:
        # An emptied variable counts as unset, and without these settings nothing is kept apart.
        for name in ("api_key_digests", "tag_secrets", "tenants"):
            if os.environ.get(self.variable(name)) == "" and not getattr(self, name):
                raise ValueError(f"{name}: its variable is empty: set it, or unset it to have none")
        return self

    @model_validator(mode="after")
    def _check_metrics_port(self) -> Self:
        if self.metrics_port == self.port and self.uds is None:
            raise ValueError("metrics_port and port must be different")
        return self

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_true_as_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        annotation = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and annotation in {int, float, int | None, float | None}:
            raise ValueError("must be a number, not true or false")
        return value
