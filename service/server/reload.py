"""Reload on SIGHUP: API keys, tenants, tag secrets and models are read again, all at once.

A request that is running keeps the settings and the model that it began with.
"""

import logging

from pydantic import ValidationError
from starlette.datastructures import State

from mmhash.errors import MMHashError
from mmhash_service.runtime import metrics
from mmhash_service.settings import Settings

logger = logging.getLogger(__name__)

RELOADABLE = ("api_key_digests", "tenants", "private_tenants", "tag_secrets", "models")


class ReloadError(MMHashError):
    """The settings cannot be read again."""


def reload(state: State) -> None:
    """Read the settings again, and then the models; what cannot be read stays as it was.

    Run this in a thread: a model takes seconds.
    """
    try:
        state.settings = read_again(state.settings)
    except ReloadError as error:
        metrics.RELOADS.labels("failed").inc()
        logger.error("%s; the settings that were read before stay", error)  # noqa: TRY400
    else:
        metrics.RELOADS.labels("done").inc()
        logger.info("settings are read again: %s", ", ".join(RELOADABLE))
    state.models.reload(state.settings.models)


def read_again(settings: Settings) -> Settings:
    """Return the settings with those of RELOADABLE as their sources have them now."""
    try:
        found = settings.read_again()
    except ValidationError as error:
        # Without the values: a setting may be a secret.
        details = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise ReloadError(f"settings: {'; '.join(details)}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ReloadError(f"settings: {error}") from error
    if bool(found.api_key_digests) != bool(settings.api_key_digests):
        # A file that lost its keys must not open the service.
        raise ReloadError("api_key_digests: only a restart switches API keys on or off")
    others = set(Settings.model_fields) - set(RELOADABLE)
    changed = sorted(name for name in others if getattr(found, name) != getattr(settings, name))
    if changed:
        logger.warning("only a restart changes these settings: %s", ", ".join(changed))
    return settings.model_copy(update={name: getattr(found, name) for name in RELOADABLE})
