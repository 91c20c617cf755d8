"""What an operator may choose: by argument, environment or TOML file (docs/settings.md)."""

import difflib
import os
import re
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    Field,
    IPvAnyNetwork,
    SecretStr,
    StringConstraints,
    field_validator,
    model_validator,
)
from pydantic_core import from_json
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from mmhash_service.fetch.hosts import HostAllowlist, is_host
from mmhash_service.memo.address import parse_memo_url

# Above this Pillow refuses every image, by a rule of the whole process: none can be set higher.
PILLOW_MAX_PIXELS = 178_956_970

# Larger ones are mistakes, and some would fail only when they are used.
MAX_BYTES = 1 << 53
MAX_TIMEOUT_S = 24 * 3600
MAX_TTL_S = 10 * 365 * 24 * 3600

# Of a Unix socket, with the zero byte behind it.
_MAX_SOCKET_PATH = 108

PREFIX = "MMHASH_"
CONFIG_VARIABLE = "MMHASH_CONFIG"

# Variables of the library and of the guard, which are no settings of the service.
LIBRARY_VARIABLES = frozenset(
    {
        "MMHASH_CACHE_DIR",
        "MMHASH_COMPILE_DUMP",
        "MMHASH_DEVICE",
        "MMHASH_GUARD_ALLOW_PEERS",
        "MMHASH_GUARD_ENGINE",
        "MMHASH_GUARD_MAX_BODY_BYTES",
        "MMHASH_GUARD_ON_UNTAGGED",
        "MMHASH_GUARD_SECRETS",
        "MMHASH_GUARD_TENANT",
        "MMHASH_GUARD_TENANT_HEADER",
        "MMHASH_POOL_MB",
        "MMHASH_POOL_WORKERS",
        "MMHASH_VECTORS",
    }
)

_NAME = re.compile(r"[a-z0-9_]{1,64}", re.ASCII | re.IGNORECASE)
_HEX_32_BYTES = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


class Settings(BaseSettings):
    """The settings of one server."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True
    )

    host: str = Field(default="127.0.0.1", description="The address to listen on.")
    port: int = Field(
        default=8780, ge=0, le=65535, description="The port to listen on; 0 takes any free one."
    )
    uds: Path | None = Field(
        default=None,
        description="A Unix socket to listen on instead, of mode 0600.",
    )
    workers: int = Field(default=1, ge=1, le=256, description="How many processes answer.")
    grace_s: float = Field(
        default=30.0,
        gt=0,
        le=3600,
        description="How many seconds calls may take to end after SIGTERM.",
    )
    max_body_bytes: int = Field(
        default=1 << 30, ge=1, le=MAX_BYTES, description="The longest body that is read, in bytes."
    )
    max_json_bytes: int = Field(
        default=16 << 20,
        ge=1,
        le=MAX_BYTES,
        description="The longest JSON body that is read, in bytes.",
    )
    max_items: int = Field(
        default=1000, ge=1, le=100_000, description="The most items, parts or tensors of a body."
    )
    max_pixels: int = Field(
        default=PILLOW_MAX_PIXELS,
        ge=1,
        le=PILLOW_MAX_PIXELS,
        description="The most pixels of an image, all frames together; it cannot be set higher.",
    )
    decoders: int = Field(
        default=0,
        ge=0,
        le=256,
        description="How many processes of each worker decode images; 0 divides the cores among "
        "the workers, 8 at most for each. One more takes only small images.",
    )
    work_timeout_s: float = Field(
        default=10.0,
        gt=0,
        le=MAX_TIMEOUT_S,
        description="How many seconds a request may wait for a thread or a decoder, and take "
        "there.",
    )
    stall_timeout_s: float = Field(
        default=10.0,
        gt=0,
        le=MAX_TIMEOUT_S,
        description="A body of which fewer than 1024 bytes come in so many seconds has stalled; a "
        "connection that owes a head, the rest of a body or the reading of an answer for twice as "
        "long is closed.",
    )
    max_held_bytes: int = Field(
        default=256 << 20,
        ge=1 << 20,
        le=MAX_BYTES,
        description="How many bytes of bodies a process holds at once; "
        "a streamed body counts 256 KiB.",
    )
    max_calls: int = Field(
        default=1024,
        ge=1,
        le=1 << 20,
        description="How many calls with a body a process answers at once.",
    )
    shm: bool = Field(
        default=False, description="Whether items may lie in POSIX shared memory of this host."
    )
    cuda_ipc: bool = Field(
        default=False, description="Whether items may lie in CUDA memory of this host."
    )
    url_hosts: tuple[str, ...] = Field(
        default=(),
        description="The hosts that http(s) URLs may name, `*.example.org` for all below one, "
        "with `:PORT` for another port than the scheme's; without any, no URL is followed.",
    )
    url_networks: tuple[IPvAnyNetwork, ...] = Field(
        default=(),
        description="The private networks in which such a host may lie; else its address must be "
        "public.",
    )
    url_max_bytes: int = Field(
        default=64 << 20,
        ge=1,
        le=MAX_BYTES,
        description="The longest content that a URL is read for, in bytes.",
    )
    url_timeout_s: float = Field(
        default=10.0,
        gt=0,
        le=MAX_TIMEOUT_S,
        description="How many seconds a URL's content may take, all in all.",
    )
    file_root: Path | None = Field(
        default=None, description="The folder below which file: URLs may point; without it, none."
    )
    memo_url: SecretStr | None = Field(
        default=None,
        description="Where the memo is kept, if not in memory: `sqlite:PATH`, or the `redis:` URL "
        "of a server, a cluster or a sentinel.",
    )
    memo_bytes: int = Field(
        default=64 << 20,
        ge=0,
        le=MAX_BYTES,
        description="How much the memo of a process holds, in bytes.",
    )
    tenants: dict[Name, SecretStr] = Field(
        default={}, description="The tenants by name, each with its secret: 64 hex digits."
    )
    private_tenants: frozenset[Name] = Field(
        default=frozenset(), description="The tenants who share no memo with others."
    )
    tag_secrets: tuple[SecretStr, ...] = Field(
        default=(),
        description="What tags are signed with, the newest first, each 64 hex digits; with none, "
        "`sign` is refused.",
    )
    tag_ttl_s: int = Field(
        default=600, ge=1, le=MAX_TTL_S, description="For how many seconds a tag is valid."
    )
    api_key_digests: tuple[str, ...] = Field(
        default=(),
        description="The BLAKE3 digests of the API keys, in hex; with any, all calls but the "
        "probes and the page need a key.",
    )

    @field_validator("host")
    @classmethod
    def _check_host(cls, host: str) -> str:
        try:
            ip_address(host)
        except ValueError:
            if not is_host(host.lower()):
                raise ValueError("an IP address or the name of a host") from None
        return host

    @field_validator("uds")
    @classmethod
    def _check_uds(cls, path: Path | None) -> Path | None:
        if path is None:
            return None
        _check_path(path)
        if len(os.fsencode(path)) >= _MAX_SOCKET_PATH:
            raise ValueError(f"the path of a Unix socket has less than {_MAX_SOCKET_PATH} bytes")
        if not path.parent.is_dir():
            raise ValueError("the folder of the Unix socket does not exist")
        if path.exists() and not path.is_socket():
            raise ValueError("the path exists and is no Unix socket")
        return path

    @field_validator("file_root")
    @classmethod
    def _check_file_root(cls, path: Path | None) -> Path | None:
        if path is not None:
            _check_path(path)
            if not path.is_dir():
                raise ValueError("not a folder")
        return path

    @field_validator("url_hosts")
    @classmethod
    def _check_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        HostAllowlist(hosts)
        return hosts

    @field_validator("memo_url")
    @classmethod
    def _check_memo_url(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None:
            parse_memo_url(url.get_secret_value())
        return url

    @model_validator(mode="after")
    def _check_private_tenants(self) -> Self:
        if not self.private_tenants <= self.tenants.keys():
            raise ValueError("private_tenants has a name that tenants has not")
        return self

    @field_validator("tenants")
    @classmethod
    def _check_secrets(cls, tenants: dict[str, SecretStr]) -> dict[str, SecretStr]:
        if not all(_HEX_32_BYTES.fullmatch(text.get_secret_value()) for text in tenants.values()):
            raise ValueError("a tenant's secret is 64 hex digits")
        return tenants

    @field_validator("tag_secrets")
    @classmethod
    def _check_tag_secrets(cls, secrets: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        if not all(_HEX_32_BYTES.fullmatch(secret.get_secret_value()) for secret in secrets):
            raise ValueError("a secret of tags is 64 hex digits")
        return secrets

    @field_validator("api_key_digests")
    @classmethod
    def _check_digests(cls, digests: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(_HEX_32_BYTES.fullmatch, digests)):
            raise ValueError("an API key's digest is 64 hex digits")
        return tuple(digest.lower() for digest in digests)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  (pydantic names it)
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  (as above)
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """An argument goes before the environment, and that before the file."""
        refuse_unknown_variables(os.environ)
        path = os.environ.get(CONFIG_VARIABLE)
        if path is None:
            return init_settings, env_settings
        if not Path(path).is_file():
            raise ValueError(f"{CONFIG_VARIABLE} names no file")
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, path)


def _check_path(path: Path) -> None:
    """Refuse what no file system takes; an empty text would be the current folder."""
    try:
        text = os.fsencode(path)
    except UnicodeEncodeError:
        raise ValueError("a path that is not text") from None
    if path == Path() or b"\0" in text:
        raise ValueError("a path that is empty or holds a zero byte")


def parse_assignment(text: str) -> tuple[str, Any]:
    """The name and value of a setting in `name=value`, as the environment would have it."""
    name, sign, value = text.partition("=")
    if not _NAME.fullmatch(name):  # it may be a value, and a secret
        raise ValueError("a setting is given as NAME=VALUE")
    if not sign or name not in Settings.model_fields:
        raise ValueError(nearest(name, list(Settings.model_fields)))
    if value[:1] not in {"[", "{"}:
        return name, value
    try:
        return name, from_json(value)
    except ValueError as error:
        raise ValueError(f"{name}: not JSON: {error}") from None


def nearest(name: str, known: list[str]) -> str:
    """What to say of a name that is not known."""
    found = difflib.get_close_matches(name, known, 1, 0)
    return f"{name} is not known: is it {found[0]}?"


def refuse_unknown_variables(environment: Any) -> None:
    """Stop at a variable that nobody reads: misspelt, it would change nothing without a word."""
    known = {*LIBRARY_VARIABLES, CONFIG_VARIABLE} | {
        PREFIX + field.upper() for field in Settings.model_fields
    }
    for name in environment:
        if name.startswith(PREFIX) and name not in known:
            raise ValueError(nearest(name, sorted(known)))
