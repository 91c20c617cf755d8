"""The calls that a tokenizer or a gateway needs beside `POST /hash`, as steps."""

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any, NamedTuple

from mmhash.client.answers import Annotated, Asked, Item, document, malformed, member
from mmhash.client.effects import ANSWER_BASE, Effects, Request, RunInThread
from mmhash.client.payload import Of
from mmhash.client.retry import post_json, send_once, send_with_retry
from mmhash.client.session import Session
from mmhash.digest import Algorithm, Digest, check_algorithm
from mmhash.errors import InputTypeError, InputValueError, ServiceError

_MIB = 1 << 20

# As 64-bit numbers or as hashes of at most 512 bits.
_ID_BYTES = 24
_BLOCK_BYTES = 136
_BLOCK = re.compile("(?:[0-9a-f]{2}){8,64}")

INFO = Request("GET", "/info", limit=_MIB)


class Span(NamedTuple):
    """Where an item's placeholders stand among the ids, `end` excluded, and the item's key."""

    start: int
    end: int
    key: Digest

    def payload(self) -> dict[str, Any]:
        """The span as the service takes it."""
        return {"start": self.start, "end": self.end, "key": self.key.hex()}


def annotate(
    session: Session,
    request: Mapping[str, Any],
    *,
    engine: str,
    algorithm: Algorithm = "blake3",
    of: Of = "bytes",
    sign: bool = False,
) -> Effects[Annotated]:
    """Put the hash of each image, video and audio into a request for `vllm` or `sglang@0.5.23`.

    With `sign` the service's tags are put in too, for its guard in front of the engine.
    """
    _check_text("engine", engine)
    if of not in {"bytes", "pixels"}:
        raise InputValueError(f"of is bytes or pixels, not {of!r}")
    query = {
        "engine": engine,
        "algorithm": check_algorithm(algorithm),
        "of": of,
        "sign": str(int(bool(sign))),
    }
    # The request comes back, its text perhaps escaped, with a hash and an item for each medium.
    payload = yield from post_json(session, "/annotate", request, query, limit=_MIB, per_byte=4)
    asked = Asked(check_algorithm(algorithm), frozenset({engine}))
    items = [Item.parse(item, asked) for item in member(payload, "items", list)]
    return Annotated(member(payload, "request", dict), items)


def pad(
    session: Session,
    input_ids: Sequence[int],
    spans: Iterable[Span],
    *,
    engine: str = "sglang",
    version: str | None = None,
) -> Effects[list[int]]:
    """Fill each span of placeholders as the engine's prefix cache has it."""
    ids, told_spans = _ids(input_ids), _told(spans)
    body = {"engine": engine, "version": version, "input_ids": ids, "spans": told_spans}
    limit = ANSWER_BASE + _ID_BYTES * len(ids)
    payload = yield from post_json(session, "/pad", body, limit=limit)
    padded: list[int] = member(payload, "input_ids", list)
    yield RunInThread(lambda: _check_padded(padded, ids, told_spans))
    return padded


def blocks(
    session: Session,
    input_ids: Sequence[int],
    block_size: int,
    *,
    engine: str,
    version: str | None = None,
    spans: Iterable[Span] = (),
    cache_salt: str | None = None,
    extra_key: str | None = None,
) -> Effects[list[str]]:
    """Name each block of a prompt as the engine's prefix cache does, in hex."""
    ids = _ids(input_ids)
    if isinstance(block_size, bool) or not isinstance(block_size, int):
        raise InputTypeError(f"block_size is an int, not {type(block_size).__name__}")
    if block_size < 1:
        raise InputValueError(f"block_size is at least 1, not {block_size}")
    body = {
        "engine": engine,
        "version": version,
        "input_ids": ids,
        "block_size": block_size,
        "spans": _told(spans),
        "cache_salt": cache_salt,
        "extra_key": extra_key,
    }
    whole = len(ids) // block_size
    begun = -(-len(ids) // block_size)  # SGLang names the last page too, if it is not full
    limit = ANSWER_BASE + _BLOCK_BYTES * begun
    names: list[str] = member(
        (yield from post_json(session, "/blocks", body, limit=limit)), "blocks", list
    )
    if not whole <= len(names) <= begun:
        malformed(f"it names {len(names)} blocks, not {whole}")
    if not all(isinstance(name, str) and _BLOCK.fullmatch(name) for name in names):
        malformed("a block's name is not hex")
    return names


def info(session: Session) -> Effects[dict[str, Any]]:
    """What the service can do, and how far it goes."""
    return parse_info(document((yield from send_with_retry(session, INFO))))


def parse_info(payload: Any) -> dict[str, Any]:
    """The answer to `GET /info`."""
    if not all(isinstance(name, str) for name in member(payload, "in_place", list)):
        malformed("its 'in_place' is not a list of names")
    found: dict[str, Any] = payload
    return found


def health(session: Session) -> Effects[bool]:
    """Whether the service answers at all; asked once."""
    return (yield from _answers(session, "/health"))


def ready(session: Session) -> Effects[bool]:
    """Whether calls may come; asked once."""
    return (yield from _answers(session, "/ready"))


def _answers(session: Session, path: str) -> Effects[bool]:
    try:
        yield from send_once(session, Request("GET", path))
    except ServiceError:
        return False
    return True


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise InputTypeError(f"{name} is a str, not {type(value).__name__}")


def _ids(input_ids: Any) -> list[int]:
    """The ids as JSON has them: numpy's integers become Python's."""
    try:
        return [index(token) for token in input_ids]
    except TypeError:
        raise InputTypeError("input_ids is a sequence of integers") from None


def _told(spans: Any) -> list[dict[str, Any]]:
    try:
        given = list(spans)
    except TypeError:
        raise InputTypeError("spans is an iterable of Span") from None
    for span in given:
        if not (isinstance(span, Span) and isinstance(span.key, Digest)):
            raise InputTypeError("spans is an iterable of Span, each with a Digest as its key")
    return [span.payload() for span in given]


def _check_padded(padded: list[Any], ids: list[int], spans: list[dict[str, Any]]) -> None:
    """Refuse ids that are not as many, are no numbers, or are changed outside the spans."""
    if len(padded) != len(ids):
        malformed(f"it has {len(padded)} ids, not {len(ids)}")
    if not all(type(token) is int for token in padded):
        malformed("one of its ids is not an integer")
    expected = list(ids)
    for span in spans:
        expected[span["start"] : span["end"]] = padded[span["start"] : span["end"]]
    if padded != expected:
        malformed("an id outside the spans is another one")
