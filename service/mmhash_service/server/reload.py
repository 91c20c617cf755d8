"""Reload on SIGHUP: replaces API keys, tenants, tag secrets and models.

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
    """Load the settings, then the models. Keep the old ones if that fails.

    Run this in a thread: a model takes seconds.
    """
    try:
        resources.settings = read_again(resources.settings)
    except (InputError, OSError) as error:
        metrics.RELOADS.labels("failed").inc()
        logger.error("%s: the old settings stay in use", error)  # noqa: TRY400
    else:
        metrics.RELOADS.labels("done").inc()
        logger.info("reloaded the settings %s", ", ".join(RELOADABLE))
    resources.models.reload(resources.settings.models)


def read_again(settings: Settings) -> Settings:
    """Return the settings with fresh values of RELOADABLE."""
    with settings_errors():
        found = settings.read_again()
    if bool(found.api_key_digests) != bool(settings.api_key_digests):
        # A file that lost its keys must not open the service to everyone.
        raise InputValueError("api_key_digests: only a restart can switch API keys on or off")
    others = set(Settings.model_fields) - set(RELOADABLE)
    changed = sorted(name for name in others if getattr(found, name) != getattr(settings, name))
    if changed:
        logger.warning("changes of these settings need a restart: %s", ", ".join(changed))
    return settings.model_copy(update={name: getattr(found, name) for name in RELOADABLE})
