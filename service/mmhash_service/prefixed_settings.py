"""The base of the settings that have variables of their own: the guard's and the gateway's.

The guard's do not import the service's: that would import half of the service into the engine.
"""

import difflib
import os
from collections.abc import Iterable
from typing import ClassVar

from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from mmhash_service.secret_files import SecretFiles

# Of a misspelt name; difflib's default of 0.6 suggests file_root for log_root.
_SIMILAR = 0.75


def unknown_name(name: str, known: Iterable[str], page: str, prefix: str = "") -> str:
    """Return the error message for an unknown name, with a known one if it is similar.

    The prefix is shown with both names, and is not compared.
    """
    closest = difflib.get_close_matches(name, known, 1, _SIMILAR)
    hint = f"did you mean {prefix}{closest[0]}?" if closest else f"{page} lists the known ones"
    return f"unknown name {prefix}{name}: {hint}"


class PrefixedSettings(BaseSettings):
    """Settings with an `env_prefix` of their own, where an unknown variable is an error."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    page: ClassVar[str]
    """The page that lists them."""
    secret_files: ClassVar[SecretFiles]
    """Those that files may hold."""

    @classmethod
    def variable(cls, name: str) -> str:
        """Return the environment variable of a setting."""
        return f"{cls.model_config['env_prefix']}{name.upper()}"

    @classmethod
    def variables(cls) -> frozenset[str]:
        """Return the environment variables of all settings, and those that name their files."""
        return frozenset(map(cls.variable, cls.model_fields)) | cls.secret_files.variables

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  (pydantic names it)
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  (as above)
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources: an argument overrides the environment, and this the files."""
        prefix, known = cls.variable(""), cls.variables()
        for name in os.environ:
            if name.startswith(prefix) and name not in known:
                own = [each.removeprefix(prefix) for each in sorted(known)]
                raise ValueError(unknown_name(name.removeprefix(prefix), own, cls.page, prefix))
        files = InitSettingsSource(settings_cls, cls.secret_files.read(os.environ))
        return init_settings, env_settings, files
