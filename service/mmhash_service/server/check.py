"""`mmhash serve --check`: tries everything that a server needs to start, without listening."""

import asyncio
from typing import Any

from mmhash.errors import InputValueError, MMHashError
from mmhash_service.fetch.hosts import HostAllowlist
from mmhash_service.memo.redis import RedisStore, find_store
from mmhash_service.settings import Settings

_TIMEOUT_S = 10.0


class CheckError(MMHashError):
    """A resource that the settings name cannot be used."""


def check_values(settings: Settings) -> None:
    """Refuse values that only the code using them can check, before a process starts."""
    name = "url_hosts"
    try:
        HostAllowlist(settings.url_hosts)
        name = "memo_url"
        find_store(settings)
    except ValueError as error:
        raise InputValueError(f"settings: {name}: {error}") from error


def check_resources(settings: Settings) -> dict[str, Any]:
    """Load the models, and try the memo's store. Return what was checked, without secrets."""
    check_values(settings)
    facts: dict[str, Any] = {"settings": "ok", "models": [], "memo": "memory"}
    if settings.models:
        # Imported late: the engines, numpy and the metrics take CPU time.
        from mmhash_service.models import Models  # noqa: PLC0415

        facts["models"] = Models(settings.models).names
    if (store := find_store(settings)) is not None:
        asyncio.run(_ask(store))
        facts["memo"] = f"{store.scheme}: reachable"
    return facts


async def _ask(store: RedisStore) -> None:
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await store.get(b"mmhash-check")
    except Exception as error:  # the errors of redis-py have no common base
        # Do not quote the error, which may contain the URL and its password.
        raise CheckError(
            f"memo_url: the {store.scheme} store cannot be used ({type(error).__name__}): check"
            " its address and password, and that it runs"
        ) from error
    finally:
        await store.close()
