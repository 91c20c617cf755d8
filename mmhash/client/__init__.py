"""Asking the service: a client that waits, and one for an event loop."""

try:
    import httpx as _httpx  # noqa: F401  (said here, for all that is imported below)
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "httpx is not installed: pip install 'mmhash-keys[client]'", name=missing.name
    ) from None

from mmhash.client.answers import Annotated, Item
from mmhash.client.calls import Span
from mmhash.client.clients import AsyncClient, Client

__all__ = ["Annotated", "AsyncClient", "Client", "Item", "Span"]
