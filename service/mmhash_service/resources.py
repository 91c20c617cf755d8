"""What the requests of an application share."""

from typing import Protocol, Self, cast

from fastapi import Request
from starlette.datastructures import State
from starlette.types import Receive, Scope, Send

from mmhash_service.decoder.pool import DecoderPool
from mmhash_service.fetch.fetcher import Fetcher
from mmhash_service.limits.capacity import Limits
from mmhash_service.limits.threads import PromptPool, ThreadPool
from mmhash_service.memo.memo import Memo
from mmhash_service.models import Models
from mmhash_service.settings import Settings


class Application(Protocol):
    """An ASGI application with its resources in its state."""

    state: State

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or the lifespan."""


class Resources:
    """The resources of the service. The gateway adds its workers."""

    def __init__(self, settings: Settings, models: Models | None = None) -> None:
        """Create the resources. Load the models unless they are given."""
        self.models = Models(settings.models) if models is None else models
        # A request reads this only once, because a reload replaces it.
        self.settings = settings
        self.limits = Limits(settings)
        self.work = ThreadPool(settings.timeout_s)
        self.prompts = PromptPool(settings.timeout_s)
        self.decoders = DecoderPool(settings)
        self.memo = Memo(settings)
        self.fetcher = Fetcher(settings)

    @classmethod
    def of(cls, request: Request) -> Self:
        """Return the resources of the application that answers a request."""
        return cls.of_app(request.app)

    @classmethod
    def of_app(cls, app: Application) -> Self:
        """Return the resources of an application."""
        return cast("Self", app.state.resources)

    @property
    def lacks_workers(self) -> bool:
        """True for a gateway without a healthy worker."""
        return False

    async def open(self) -> None:
        """Start the decoders, and connect to the memo's store."""
        self.decoders.open()
        await self.memo.open()

    async def close(self) -> None:
        """Undo `open`, after the last request."""
        await self.decoders.close()
        await self.fetcher.close()
        await self.memo.close()

    def stop_threads(self) -> None:
        """Start no more jobs in threads, and cancel the queued ones."""
        self.work.stop()
        self.prompts.stop()
