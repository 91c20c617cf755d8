"""Clients of the service: `Client` for threads, `AsyncClient` for an event loop."""

from mmhash.engines.engine import Span
from mmhash.extras import needs_extra

with needs_extra("client"):
    from mmhash.client.clients import AsyncClient, Client
    from mmhash.client.items import Item
    from mmhash.client.requests import Annotated, PlannedPrompt
    from mmhash.client.token_ids import Blocks

__all__ = ["Annotated", "AsyncClient", "Blocks", "Client", "Item", "PlannedPrompt", "Span"]
