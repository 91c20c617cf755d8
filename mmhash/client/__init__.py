"""Clients of the service: `Client` for threads, `AsyncClient` for event loops."""

from mmhash.engines.engine import Span
from mmhash.extras import needs_extra

with needs_extra("client"):
    from mmhash.client.clients import AsyncClient, Client
    from mmhash.client.results import Annotated, Blocks, Item, PlannedPrompt

__all__ = ["Annotated", "AsyncClient", "Blocks", "Client", "Item", "PlannedPrompt", "Span"]
