"""An AsyncClient behind blocking methods, so one test covers both clients."""

import asyncio
from typing import Any, Self

from mmhash.client import AsyncClient


class BlockingAsyncClient:
    """An AsyncClient whose methods block until they have their result."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._arguments, self._options = arguments, options

    def __enter__(self) -> Self:
        self._runner = asyncio.Runner()
        self._client = self._runner.run(self._open())
        return self

    async def _open(self) -> AsyncClient:
        return AsyncClient(*self._arguments, **self._options)

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found):
            return found
        return lambda *arguments, **options: self._runner.run(found(*arguments, **options))
