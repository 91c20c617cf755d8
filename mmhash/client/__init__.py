"""Clients of the service: `Client` for threads, `AsyncClient` for an event loop."""

try:
    import httpx as _httpx  # noqa: F401  (reported here for all imports below)
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "httpx is not installed: pip install 'mmhash-keys[client]'", name=missing.name
    ) from None

from mmhash.client.claims import Claim
from mmhash.client.clients import AsyncClient, Client
from mmhash.client.endpoints import Annotated, Blocks, PlannedPrompt
from mmhash.client.items import Item
from mmhash.engines.engine import Span

__all__ = ["Annotated", "AsyncClient", "Blocks", "Claim", "Client", "Item", "PlannedPrompt", "Span"]
