"""`mmhash serve --check`: tries everything that a server needs at its start, without listening."""

import asyncio
from typing import Any

from mmhash.errors import InputValueError, MMHashError
from mmhash_service.fetch.hosts import HostAllowlist
from mmhash_service.memo.stores import create_store, scheme_of
from mmhash_service.settings import Settings

_TIMEOUT_S = 10.0


class CheckError(MMHashError):
    """A resource that the settings name cannot be used."""


def check_values(settings: Settings) -> None:
    """Refuse values that only their users can parse, before a process is started."""
    name = "url_hosts"
    try:
        HostAllowlist(settings.url_hosts)
        name = "memo_url"
        if settings.memo_url is not None:
            create_store(settings.memo_url.get_secret_value())
    except ValueError as error:
        raise InputValueError(f"settings: {name}: {error}") from error


def check_resources(settings: Settings) -> dict[str, Any]:
    """Read the models and a value of the store; return what was checked, without secrets."""
    check_values(settings)
    facts: dict[str, Any] = {"settings": "ok", "models": [], "memo": "memory"}
    if settings.models:
        # Imported late: the engines, numpy and the metrics take CPU time.
        from mmhash_service.models import Models  # noqa: PLC0415

        facts["models"] = Models(settings.models).names
    if settings.memo_url is not None:
        url = settings.memo_url.get_secret_value()
        asyncio.run(_check_store(url))
        facts["memo"] = f"{scheme_of(url)}: reachable"
    return facts


async def _check_store(url: str) -> None:
    store = create_store(url)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await store.get(b"mmhash-check")
    except Exception as error:  # each store raises the errors of its own package
        # Without the message, which may contain the URL and thus a password.
        raise CheckError(
            f"memo_url: the {scheme_of(url)} store cannot be used ({type(error).__name__}): check"
            " its address, its password and that it runs"
        ) from error
    finally:
        await store.close()
