"""The spans of `POST /pad` and `POST /blocks`."""

from pydantic import Field

from mmhash import Digest
from mmhash.engines import engine
from mmhash_service.bodies.types import Hex16, Hex64, Natural, RequestModel
from mmhash_service.problems.problem import InvalidPart, Problem


class Span(RequestModel):
    """An item's placeholders, from `start` to before `end`, and the item's key or hash."""

    start: Natural
    end: Natural
    key: Hex64 | None = Field(default=None, description="The key returned by `POST /hash`.")
    hash: Hex16 | None = Field(default=None, description="The 64-bit hash that SGLang uses.")


def item_spans(spans: list[Span]) -> list[engine.Span]:
    """Return the spans in the form that the engines' modules take."""
    return [_item_span(number, span) for number, span in enumerate(spans)]


def _item_span(number: int, span: Span) -> engine.Span:
    key = None if span.key is None else Digest("blake3", bytes.fromhex(span.key))
    try:
        return engine.Span(span.start, span.end, key, span.hash)
    except engine.ItemSpanError as error:
        forms = "give key as POST /hash returns it, or hash, the 16 hex digits that SGLang uses"
        part = InvalidPart(f"{error}: {forms}", pointer=f"/spans/{number}")
        raise Problem("invalid-json", [part]) from error
