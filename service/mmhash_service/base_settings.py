"""The base of all settings: of the service, the gateway and the guard.

A setting comes from an argument, a variable (`MMHASH_TENANTS`), a file that a variable names
(`MMHASH_TENANTS_FILE`), or the service's TOML file. Files keep secrets out of the environment. An
empty variable counts as unset.
Errors never show a value, because it may be a secret.
"""

import difflib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tomllib import TOMLDecodeError
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_origin

from pydantic import AfterValidator, SecretStr, ValidationError
from pydantic_core import from_json
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from mmhash.errors import InputValueError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_FILE = "_FILE"
_NAME = re.compile(r"[a-z0-9_]{1,64}", re.ASCII | re.IGNORECASE)
_HEX_32_BYTES = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_QUOTED = re.compile(r'"(\w+)"')
_JSON = 'not JSON: lists and tables are written ["a", "b"] and {"name": "value"}'

# With difflib's default of 0.6, names that share a word would be suggested for each other.
_SIMILAR = 0.75


def _check_hex(secret: SecretStr) -> SecretStr:
    if not _HEX_32_BYTES.fullmatch(secret.get_secret_value()):
        raise ValueError("a secret must be 64 hex digits")
    return secret


HexSecret = Annotated[SecretStr, AfterValidator(_check_hex)]
"""32 secret bytes in hex."""


class SourcedSettings(BaseSettings):
    """Settings whose variables share a prefix. An unknown variable with the prefix is an error."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, env_ignore_empty=True
    )

    page: ClassVar[str]
    """The docs page that lists the settings."""
    other_variables: ClassVar[frozenset[str]] = frozenset()
    """Variables with this prefix that other programs read."""
    other_prefixes: ClassVar[tuple[str, ...]] = ()
    """Prefixes of variables that other settings read."""
    config_variable: ClassVar[str | None] = None
    """The variable that names a TOML file with these settings."""
    config_table: ClassVar[str | None] = None
    """The table of that file with these settings, or None for its top level."""
    other_tables: ClassVar[frozenset[str]] = frozenset()
    """Tables at the top level that other settings read."""

    @classmethod
    def variable(cls, name: str) -> str:
        """Return the environment variable of a setting."""
        return f"{cls.model_config['env_prefix']}{name.upper()}"

    @classmethod
    def known_variables(cls) -> set[str]:
        """Return the variables with this prefix that mean something."""
        plain = {cls.variable(name) for name in cls.model_fields}
        own = {cls.config_variable} if cls.config_variable else set()
        return plain | {name + _FILE for name in plain} | own | cls.other_variables

    @classmethod
    def parse_assignment(cls, text: str, prefix: str = "") -> tuple[str, Any]:
        """Return the name and value of `name=value`, parsed like an environment variable.

        Errors show the names with the prefix.
        """
        name, sign, value = text.partition("=")
        if not _NAME.fullmatch(name):  # do not show it: it may be a value, even a secret
            raise ValueError("--set expects NAME=VALUE")
        if name not in cls.model_fields:
            raise ValueError(cls._unknown(name, cls.model_fields, prefix))
        if not sign:
            raise ValueError(f"{name} has no value: --set expects NAME=VALUE")
        return name, _parse(name, value) if value[:1] in {"[", "{"} else value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  (pydantic names it)
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  (as above)
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources, the strongest first: arguments, environment, files."""
        cls._refuse_unknown_variables()
        files = InitSettingsSource(settings_cls, cls._read_files())
        sources = (init_settings, env_settings, files)
        path = os.environ.get(cls.config_variable or "")
        if path is None:
            return sources
        if not Path(path).is_file():
            raise ValueError(f"{cls.config_variable} does not name a file")
        return (*sources, InitSettingsSource(settings_cls, cls._read_table(settings_cls, path)))

    @classmethod
    def _read_table(cls, settings_cls: type[BaseSettings], path: str) -> dict[str, Any]:
        try:
            values = TomlConfigSettingsSource(settings_cls, path).toml_data
        except (TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: {error}") from error
        prefix = ""
        if cls.config_table is not None:
            values, prefix = values.get(cls.config_table, {}), f"{cls.config_table}."
            if not isinstance(values, dict):
                raise ValueError(f"{path}: {cls.config_table} is not a table")
        own = {name: value for name, value in values.items() if name not in cls.other_tables}
        if unknown := [name for name in own if name not in cls.model_fields]:
            errors = (cls._unknown(name, cls.model_fields, prefix) for name in unknown)
            raise ValueError("; ".join(errors))
        return own

    @classmethod
    def _refuse_unknown_variables(cls) -> None:
        """Raise ValueError for an unknown variable, because a misspelt one would be ignored."""
        prefix, known = cls.variable(""), cls.known_variables()
        for name in os.environ:
            if (
                name.startswith(prefix)
                and not name.startswith(cls.other_prefixes)
                and name not in known
            ):
                own = [each.removeprefix(prefix) for each in sorted(known)]
                raise ValueError(cls._unknown(name.removeprefix(prefix), own, prefix))

    @classmethod
    def _unknown(cls, name: str, known: Iterable[str], prefix: str = "") -> str:
        closest = difflib.get_close_matches(name, known, 1, _SIMILAR)
        hint = f"did you mean {prefix}{closest[0]}?" if closest else f"{cls.page} lists them"
        return f"unknown name {prefix}{name}: {hint}"

    @classmethod
    def _read_files(cls) -> dict[str, Any]:
        values = {}
        for name, info in cls.model_fields.items():
            plain = cls.variable(name)
            variable = plain + _FILE
            if variable not in os.environ:
                continue
            if os.environ.get(plain):
                raise ValueError(f"{variable} and {plain} are both set: set one of them")
            text = _read(variable, Path(os.environ[variable]))
            is_list = get_origin(info.annotation) is tuple
            if text[:1] in {"[", "{"}:
                values[name] = _parse(f"the file of {variable}", text)
            else:
                values[name] = text.split() if is_list else text
            # An empty list of keys would open the service to everyone.
            if not values[name]:
                raise ValueError(f"the file of {variable} is empty")
        return values


def _read(variable: str, path: Path) -> str:
    if not path.is_file():
        raise ValueError(f"{variable} does not name a file")
    try:
        return path.read_text("utf-8").strip()
    except OSError as error:
        raise ValueError(f"{variable}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"the file of {variable} is not UTF-8") from None


def _parse(name: str, text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:
        raise ValueError(f"{name}: {_JSON}") from None


@contextmanager
def settings_errors() -> Iterator[None]:
    """Turn errors of settings into one line that names each wrong setting."""
    try:
        yield
    except ValidationError as error:
        raise InputValueError(f"settings: {'; '.join(map(_detail, error.errors()))}") from error
    except RecursionError as error:
        raise InputValueError("settings: a value is nested too deeply") from error
    except SettingsError as error:  # a variable is not JSON
        found = _QUOTED.search(str(error))
        reason = f"{found[1]}: {_JSON}" if found else str(error)
        raise InputValueError(f"settings: {reason}") from error
    except ValueError as error:
        raise InputValueError(f"settings: {error}") from error


def _detail(error: "ErrorDetails") -> str:
    path = ".".join(map(str, error["loc"]))
    reason = error["msg"].removeprefix("Value error, ")
    if error["type"] in {"tuple_type", "dict_type", "frozen_set_type"}:
        reason = _JSON
    # An error about several settings has no path.
    return ": ".join(filter(None, (path, reason)))
