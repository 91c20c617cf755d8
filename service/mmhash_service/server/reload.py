"""Reload on SIGHUP: reads API keys, tenants, tag secrets and models again, all at once.

A running request keeps the settings and the model that it began with.
"""

import logging

from mmhash.errors import InputError, InputValueError
from mmhash_service.base_settings import settings_errors
from mmhash_service.resources import Resources
from mmhash_service.settings import Settings
from mmhash_service.telemetry import metrics

logger = logging.getLogger(__name__)

RELOADABLE = ("api_key_digests", "tenants", "tag_secrets", "models")


def reload(resources: Resources) -> None:
    """Read the settings again, then the models; keep whatever cannot be read.

    Run this in a thread: reading a model takes seconds.
    """
    try:
        resources.settings = read_again(resources.settings)
    except (InputError, OSError) as error:
        metrics.RELOADS.labels("failed").inc()
        logger.error("%s; the settings that were read before stay", error)  # noqa: TRY400
    else:
        metrics.RELOADS.labels("done").inc()
        logger.info("settings are read again: %s", ", ".join(RELOADABLE))
    resources.models.reload(resources.settings.models)


def read_again(settings: Settings) -> Settings:
    """Return the settings, with fresh values for RELOADABLE."""
    with settings_errors():
        found = settings.read_again()
    if bool(found.api_key_digests) != bool(settings.api_key_digests):
        # A file that lost its keys must not open the service.
        raise InputValueError("api_key_digests: only a restart switches API keys on or off")
    others = set(Settings.model_fields) - set(RELOADABLE)
    changed = sorted(name for name in others if getattr(found, name) != getattr(settings, name))
    if changed:
        logger.warning("only a restart changes these settings: %s", ", ".join(changed))
    return settings.model_copy(update={name: getattr(found, name) for name in RELOADABLE})
