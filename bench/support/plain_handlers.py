"""The service, and the plain handlers on the same server that it is compared with.

`python -m bench.support.plain_handlers PROCESSES` serves them on a free port.
"""

import sys
from typing import Any

from fastapi import Request

import mmhash
from mmhash_service.http.app import create_app
from mmhash_service.models import Models
from mmhash_service.server import server
from mmhash_service.settings import Settings


def with_plain_handlers(settings: Settings, models: Models | None) -> Any:
    """Return the application with `/count`, `/whole` and `/empty` added."""
    app = create_app(settings, models=models)

    async def count(request: Request) -> dict[str, int]:
        nbytes = 0
        async for piece in request.stream():
            nbytes += len(piece)
        return {"nbytes": nbytes}

    async def whole(request: Request) -> dict[str, str]:
        return {"digest": mmhash.digest(await request.body()).hex()}

    async def empty() -> dict[str, int]:
        return {}

    for path, handler in (("/count", count), ("/whole", whole), ("/empty", empty)):
        app.post(path)(handler)
    return app


def serve(processes: int) -> None:
    """Serve until SIGTERM."""
    server.serve(Settings(port=0, processes=processes), with_plain_handlers)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
