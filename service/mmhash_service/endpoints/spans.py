"""Converts the spans of a request's body for the engines' modules."""

from mmhash import Digest
from mmhash.engines.engine import ItemSpanError, Span
from mmhash_service.endpoints.schemas import prompts
from mmhash_service.problems.problem import InvalidPart, Problem


def item_spans(spans: list[prompts.Span]) -> list[Span]:
    """Return the spans of a request's body in the form that the engines' modules take."""
    return [_item_span(number, span) for number, span in enumerate(spans)]


def _item_span(number: int, span: prompts.Span) -> Span:
    key = None if span.key is None else Digest("blake3", bytes.fromhex(span.key))
    try:
        return Span(span.start, span.end, key, span.hash)
    except ItemSpanError as error:
        forms = "key as POST /hash returns it, or hash, the 16 hex digits that SGLang uses"
        part = InvalidPart(f"{error}: {forms}", pointer=f"/spans/{number}")
        raise Problem("invalid-json", [part]) from error
