"""Completions (OpenAI): a prompt without media."""

from mmhash.engines.engine import Engine
from mmhash.requests.document import Document
from mmhash.requests.engine_request import EngineRequest


def read(document: Document, engine: Engine, release: str) -> EngineRequest:
    """Return a completion as an engine reads it."""
    return EngineRequest(document, engine, release)
