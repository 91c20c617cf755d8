"""The base of the settings that have variables of their own: the guard's and the gateway's.

The guard's do not import the service's: that would import half of the service into the engine.
"""

import os

from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict


class PrefixedSettings(BaseSettings):
    """Settings with an `env_prefix` of their own, where an unknown variable is an error."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @classmethod
    def variables(cls) -> frozenset[str]:
        """Return the environment variables of all settings."""
        prefix = cls.model_config["env_prefix"]
        return frozenset(prefix + name.upper() for name in cls.model_fields)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  (pydantic names it)
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003  (as above)
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003  (as above)
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources: an argument overrides the environment."""
        known = cls.variables()
        for name in os.environ:
            if name.startswith(cls.model_config["env_prefix"]) and name not in known:
                raise ValueError(f"{name} is not known: known are {', '.join(sorted(known))}")
        return init_settings, env_settings
