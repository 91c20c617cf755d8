"""Converts the spans of a request's body for the engines' modules."""

from mmhash import Digest
from mmhash.engines.engine import ItemSpanError, Span
from mmhash_service.endpoints.schemas import prompts
from mmhash_service.problems.problem import Problem


def item_span(span: prompts.Span) -> Span:
    """Return a span of a request's body in the form that the engines' modules take."""
    key = None if span.key is None else Digest("blake3", bytes.fromhex(span.key))
    try:
        return Span(span.start, span.end, key, span.hash)
    except ItemSpanError as error:
        raise Problem("refused-by-engine", reason=str(error)) from error
