"""Clients of the service: `Client` for threads, `AsyncClient` for an event loop."""

from mmhash.engines.engine import Span
from mmhash.extras import needs_extra

with needs_extra("client"):
    from mmhash.client.claims import Claim
    from mmhash.client.clients import AsyncClient, Client
    from mmhash.client.endpoints import Annotated, Blocks, PlannedPrompt
    from mmhash.client.items import Item

__all__ = ["Annotated", "AsyncClient", "Blocks", "Claim", "Client", "Item", "PlannedPrompt", "Span"]
