"""Settings of the service, from arguments, the environment and a TOML file (docs/settings.md).

The service reads its environment here. Three packages have variables of their own: the guard, which
runs inside an engine (guard/settings.py), the gateway (gateway/settings.py), and prometheus_client
(runtime/metrics.py).
"""

import os
import re
import stat
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    IPvAnyNetwork,
    PrivateAttr,
    SecretStr,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import from_json
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from mmhash.image import PILLOW_MAX_PIXELS
from mmhash_service.api.schemas.types import MAX_MODEL_NAME
from mmhash_service.fetch.hosts import HostAllowlist, is_host
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.guard.settings import GuardSettings
from mmhash_service.prefixed_settings import unknown_name
from mmhash_service.secret_files import SecretFiles

# Larger values are mistakes, and some would only fail when used.
MAX_BYTES = 1 << 53
MAX_TIMEOUT_S = 24 * 3600
MAX_TTL_S = 10 * 365 * 24 * 3600

# sizeof(sun_path) on Linux, including the terminating zero byte.
_MAX_SOCKET_PATH = 108

PREFIX = "MMHASH_"
GATEWAY = "gateway."
"""Before the name of a setting of the gateway in `--set`."""
PAGE = "docs/settings.md"
CONFIG_VARIABLE = "MMHASH_CONFIG"

SECRET_FILES = SecretFiles(
    PREFIX, single=("memo_url", "tenants"), lists=("api_key_digests", "tag_secrets")
)

# Variables that the library, the guard and the gateway read: they are known here too.
LIBRARY_VARIABLES = frozenset(
    {
        "MMHASH_CACHE_DIR",
        "MMHASH_POOL_MB",
        "MMHASH_POOL_WORKERS",
        "MMHASH_VECTORS",
        *GuardSettings.variables(),
        *GatewaySettings.variables(),
    }
)

_NAME = re.compile(r"[a-z0-9_]{1,64}", re.ASCII | re.IGNORECASE)
_HEX_32_BYTES = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
# The names that engines serve models by: of a hub, Qwen/Qwen2-VL-7B-Instruct, or of a directory.
ModelName = Annotated[
    str, StringConstraints(pattern=rf"^[A-Za-z0-9._/:@+-]{{1,{MAX_MODEL_NAME}}}$")
]


FORMS = {
    "url_hosts": '["example.org"]',
    "url_networks": '["10.0.0.0/8"]',
    "models": '{"qwen": "/models/qwen"}',
    "tenants": '{"acme": "64 hex digits"}',
    "private_tenants": '["acme"]',
    "tag_secrets": '["64 hex digits"]',
    "api_key_digests": '["64 hex digits"]',
    "worker_list": '["http://10.0.0.1:8000,engine=vllm@0.32.0"]',
}
"""Settings that are JSON in a variable and in `--set`, each with a value as it is written."""


class Settings(BaseSettings):
    """The settings of one server."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True
    )

    host: str = Field(default="127.0.0.1", description="The address to listen on.")
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
        description="Seconds that running requests have to finish after SIGTERM.",
    )
    max_body_bytes: int = Field(
        default=1 << 30, ge=1, le=MAX_BYTES, description="The largest request body, in bytes."
    )
    max_json_bytes: int = Field(
        default=16 << 20,
        ge=1,
        le=MAX_BYTES,
        description="The largest JSON request body, in bytes.",
    )
    max_items: int = Field(
        default=1000,
        ge=1,
        le=100_000,
        description="The maximum number of items, parts or tensors in a body.",
    )
    max_pixels: int = Field(
        # Pillow's limit is global to the process, so no setting can raise it.
        default=PILLOW_MAX_PIXELS,
        ge=1,
        le=PILLOW_MAX_PIXELS,
        description="The maximum number of pixels of an image, all frames together. The default is "
        "also the highest value.",
    )
    decoders: int = Field(
        default=0,
        ge=0,
        le=256,
        description="Decoder processes per server process, for images and media; 0 divides the "
        "cores among the processes, at most 8 each. One more process decodes only small images.",
    )
    work_timeout_s: float = Field(
        default=10.0,
        gt=0,
        le=MAX_TIMEOUT_S,
        description="Seconds that a request may spend in a thread or a decoder, including the wait "
        "for one.",
    )
    stall_timeout_s: float = Field(
        default=10.0,
        gt=0,
        le=MAX_TIMEOUT_S,
        description="A request body has stalled if fewer than 1024 bytes arrive in this many "
        "seconds. A connection is closed if the client sends no complete head or body, or reads no "
        "response, for twice as long.",
    )
    max_held_bytes: int = Field(
        default=256 << 20,
        ge=1 << 20,
        le=MAX_BYTES,
        description="The maximum number of body bytes in the memory of a process; a streamed body "
        "counts as 256 KiB. Long responses have as much again until they are read.",
    )
    max_calls: int = Field(
        default=1024,
        ge=1,
        le=1 << 20,
        description="The maximum number of concurrent requests with a body per process.",
    )
    cuda_ipc: bool = Field(
        default=False,
        description="Use the GPUs, and accept items in CUDA memory on the Unix socket.",
    )
    url_hosts: tuple[str, ...] = Field(
        default=(),
        description="The hosts that http(s) URLs may name: `example.org`, `*.example.org` for its "
        "subdomains, `example.org:PORT` for a port other than the default of the scheme. If empty, "
        "http(s) URLs are refused.",
    )
    url_networks: tuple[IPvAnyNetwork, ...] = Field(
        default=(),
        description="Private networks that the addresses of these hosts may belong to. All other "
        "addresses must be public.",
    )
    url_max_bytes: int = Field(
        default=64 << 20,
        ge=1,
        le=MAX_BYTES,
        description="The largest content fetched from a URL, in bytes.",
    )
    url_timeout_s: float = Field(
        default=10.0,
        gt=0,
        le=MAX_TIMEOUT_S,
        description="Seconds that fetching a URL may take in total.",
    )
    file_root: Path | None = Field(
        default=None,
        description="The directory that file: URLs are limited to. If unset, they are refused.",
    )
    memo_url: SecretStr | None = Field(
        default=None,
        description="The URL of a store behind the in-memory memo: `sqlite:PATH`, "
        "`redis://HOST:PORT/DB` or `redis+cluster://HOST:PORT`.",
    )
    memo_bytes: int = Field(
        default=64 << 20,
        ge=0,
        le=MAX_BYTES,
        description="The size of the in-memory memo of each process, in bytes.",
    )
    engine_fallback: Literal["nearest-older"] | None = Field(
        default=None,
        description="The recipe for unknown releases of engines: `nearest-older` uses that of the "
        "newest known older release. If unset, they are refused.",
    )
    models: dict[ModelName, Path] = Field(
        default={},
        description="Models that `/plan` plans prompts for: name and directory.",
    )
    tenants: dict[Name, SecretStr] = Field(
        default={}, description="Tenants: name and secret (64 hex digits)."
    )
    private_tenants: frozenset[Name] = Field(
        default=frozenset(), description="Names of tenants that share no memo with others."
    )
    tag_secrets: tuple[SecretStr, ...] = Field(
        default=(),
        description="Secrets for signing tags, the newest first, 64 hex digits each. If empty, "
        "`sign` is refused.",
    )
    tag_ttl_s: int = Field(
        default=600, ge=1, le=MAX_TTL_S, description="Seconds that a tag is valid for."
    )
    api_key_digests: tuple[str, ...] = Field(
        default=(),
        description="BLAKE3 digests of the API keys, in hex. If set, all requests need a key, "
        "except for the probes and the web pages.",
    )

    metrics_port: int | None = Field(
        default=None,
        ge=1,
        le=65535,
        description="A second port, at the same host, with only `/metrics`, which needs no API key "
        "there.",
    )

    # The arguments that the settings were created with.
    _arguments: dict[str, Any] = PrivateAttr(default_factory=dict)

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._arguments = arguments

    def read_again(self) -> Self:
        """Return the settings of the same arguments, and of the environment and files now."""
        return type(self)(**self._arguments)

    @field_validator("host")
    @classmethod
    def _check_host(cls, host: str) -> str:
        try:
            ip_address(host)
        except ValueError:
            if not is_host(host.lower()):
                raise ValueError("must be an IP address or a host name") from None
        return host

    @field_validator("uds")
    @classmethod
    def _check_uds(cls, path: Path | None) -> Path | None:
        if path is None:
            return None
        _check_path(path)
        if len(os.fsencode(path)) >= _MAX_SOCKET_PATH:
            raise ValueError(
                f"the path of a Unix socket must be shorter than {_MAX_SOCKET_PATH} bytes"
            )
        if not path.parent.is_dir():
            raise ValueError("the directory of the Unix socket does not exist")
        with suppress(OSError):  # what is there, if anything, bind() refuses
            # One system call: a server that stops may remove its socket between two.
            if not stat.S_ISSOCK(path.stat().st_mode):
                raise ValueError("the path exists and is not a Unix socket")
        return path

    @field_validator("file_root")
    @classmethod
    def _check_file_root(cls, path: Path | None) -> Path | None:
        if path is not None:
            _check_path(path)
            if not path.is_dir():
                raise ValueError("not a directory")
        return path

    @field_validator("models")
    @classmethod
    def _check_models(cls, models: dict[str, Path]) -> dict[str, Path]:
        for name, path in models.items():
            _check_path(path)
            if not path.is_dir():
                raise ValueError(f"the directory of {name} does not exist: {path}")
        return models

    @field_validator("url_hosts")
    @classmethod
    def _check_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        HostAllowlist(hosts)
        return hosts

    @model_validator(mode="after")
    def _check_private_tenants(self) -> Self:
        if not self.private_tenants <= self.tenants.keys():
            raise ValueError("private_tenants contains a name that is missing from tenants")
        return self

    @model_validator(mode="after")
    def _check_metrics_port(self) -> Self:
        if self.metrics_port == self.port and self.uds is None:
            raise ValueError("metrics_port and port must be different")
        return self

    @model_validator(mode="after")
    def _check_cuda_ipc(self) -> Self:
        if self.cuda_ipc and self.uds is None:
            raise ValueError("cuda_ipc needs uds: handles are accepted only on a Unix socket")
        return self

    @field_validator("tenants")
    @classmethod
    def _check_tenants(cls, tenants: dict[str, SecretStr]) -> dict[str, SecretStr]:
        if not all(_HEX_32_BYTES.fullmatch(text.get_secret_value()) for text in tenants.values()):
            raise ValueError("the secret of a tenant must be 64 hex digits")
        return tenants

    @field_validator("tag_secrets")
    @classmethod
    def _check_tag_secrets(cls, secrets: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        if not all(_HEX_32_BYTES.fullmatch(secret.get_secret_value()) for secret in secrets):
            raise ValueError("a tag secret must be 64 hex digits")
        return secrets

    @field_validator("api_key_digests")
    @classmethod
    def _check_digests(cls, digests: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(_HEX_32_BYTES.fullmatch, digests)):
            raise ValueError("the digest of an API key must be 64 hex digits")
        return tuple(digest.lower() for digest in digests)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_true_as_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        annotation = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and annotation in {int, float, int | None, float | None}:
            raise ValueError("must be a number, not true or false")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  (pydantic names it)
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  (as above)
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources by precedence: arguments, environment, file."""
        refuse_unknown_variables(os.environ)
        files = InitSettingsSource(settings_cls, SECRET_FILES.read(os.environ))
        path = os.environ.get(CONFIG_VARIABLE)
        if path is None:
            return init_settings, env_settings, files
        if not Path(path).is_file():
            raise ValueError(f"{CONFIG_VARIABLE} does not name a file")
        try:
            in_file = TomlConfigSettingsSource(settings_cls, path)
        except (TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: {error}") from error
        return init_settings, env_settings, files, in_file


def _check_path(path: Path) -> None:
    """Refuse an invalid path, and an empty one, which would mean the current directory."""
    try:
        text = os.fsencode(path)
    except UnicodeEncodeError:
        raise ValueError("the path cannot be encoded") from None
    if path == Path() or b"\0" in text:
        raise ValueError("the path is empty or contains a zero byte")


def parse_assignment(text: str, *, of_gateway: bool = False) -> tuple[str, Any]:
    """Return the name and value of `name=value`, parsed as in an environment variable."""
    name, sign, value = text.partition("=")
    if not _NAME.fullmatch(name.removeprefix(GATEWAY)):  # not shown: it may be a value, a secret
        raise ValueError("--set expects NAME=VALUE")
    if of_gateway:
        if name not in GatewaySettings.model_fields:
            known = GatewaySettings.model_fields
            raise ValueError(unknown_name(name, known, GatewaySettings.page, GATEWAY))
    elif name not in Settings.model_fields:
        raise ValueError(unknown_setting(name))
    if not sign:
        raise ValueError(f"{name} has no value: --set expects NAME=VALUE")
    if value[:1] not in {"[", "{"}:
        return name, value
    try:
        return name, from_json(value)
    except ValueError as error:
        raise ValueError(f"{name}: not JSON: {error}{form_hint(name)}") from None


def form_hint(name: str) -> str:
    """Return the form of a setting that is JSON, to be appended to an error message."""
    return f"; its form is {FORMS[name]}" if name in FORMS else ""


def unknown_setting(name: str) -> str:
    """Return the error message for a name that is not a setting of the service."""
    own = name.removeprefix(GATEWAY)
    if own in GatewaySettings.model_fields:
        variable = GatewaySettings.variable(own)
        return f"{own} is a setting of `mmhash gateway`: --set {GATEWAY}{own}=VALUE or {variable}"
    return unknown_name(name, Settings.model_fields, PAGE)


def refuse_unknown_variables(environment: Any) -> None:
    """Raise ValueError for an unknown `MMHASH_` variable: a misspelt one would have no effect."""
    known = {*LIBRARY_VARIABLES, *SECRET_FILES.variables, CONFIG_VARIABLE} | {
        PREFIX + field.upper() for field in Settings.model_fields
    }
    for name in environment:
        if name.startswith(PREFIX) and name not in known:
            raise ValueError(unknown_name(name, sorted(known), PAGE))
