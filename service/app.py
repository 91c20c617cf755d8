"""The application, put together, and the server that runs it."""

import signal
import sys
from copy import deepcopy

import uvicorn
from fastapi import FastAPI
from uvicorn.config import LOGGING_CONFIG

import mmhash
from mmhash_service.problems import MEDIA_TYPE, answer_with_problems
from mmhash_service.routes import hash as hash_route
from mmhash_service.routes import probes
from mmhash_service.schemas import ProblemAnswer
from mmhash_service.settings import Settings

_PROBLEM = {
    "description": "A problem (RFC 9457).",
    "content": {MEDIA_TYPE: {"schema": ProblemAnswer.model_json_schema()}},
}


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application; without `settings`, with those of the environment."""
    app = FastAPI(
        title="mmhash",
        version=mmhash.__version__,
        redirect_slashes=False,
        redoc_url=None,
        responses={"default": _PROBLEM},
    )
    app.state.settings = settings or Settings()
    app.include_router(hash_route.router)
    app.include_router(probes.router)
    answer_with_problems(app)
    return app


def serve(settings: Settings) -> None:
    """Answer until SIGTERM or SIGINT, and then finish what has begun."""
    # uvicorn, when all is finished, sends itself the signal again: then that was a good end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http="httptools",
        ws="none",
        log_config=_log_config(),
        access_log=False,
    )


def _log_config() -> dict[str, object]:
    """What uvicorn does with its own log, and the same with ours."""
    config = deepcopy(LOGGING_CONFIG)
    config["loggers"]["mmhash_service"] = config["loggers"]["uvicorn"]
    return config
