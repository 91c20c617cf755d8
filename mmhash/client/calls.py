"""The calls that a tokenizer or a gateway needs beside `POST /hash`, as steps."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from mmhash.client.answers import Annotated, Item, document
from mmhash.client.asking import ask, ask_json, ask_once
from mmhash.client.parcels import Of
from mmhash.client.session import Session
from mmhash.client.steps import Request, Steps
from mmhash.digest import Algorithm, Digest
from mmhash.errors import ServiceError


class Span(NamedTuple):
    """Where an item's placeholders stand among the ids, `end` excluded, and the item's key."""

    start: int
    end: int
    key: Digest

    def told(self) -> dict[str, Any]:
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
) -> Steps[Annotated]:
    """Put the hash of each image, video and audio into a request for `vllm` or `sglang@0.5.23`.

    With `sign` the service's tags are put in too, for its guard in front of the engine.
    """
    query = {"engine": engine, "algorithm": algorithm, "of": of, "sign": str(int(sign))}
    told = yield from ask_json(session, "/annotate", request, query)
    return Annotated(told["request"], [Item.parse(item) for item in told["items"]])


def pad(
    session: Session,
    input_ids: Sequence[int],
    spans: Iterable[Span],
    *,
    engine: str = "sglang",
    version: str | None = None,
) -> Steps[list[int]]:
    """Fill each span of placeholders as the engine's prefix cache has it."""
    body = {
        "engine": engine,
        "version": version,
        "input_ids": list(input_ids),
        "spans": [span.told() for span in spans],
    }
    ids: list[int] = (yield from ask_json(session, "/pad", body))["input_ids"]
    return ids


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
) -> Steps[list[str]]:
    """Name each block of a prompt as the engine's prefix cache does, in hex."""
    body = {
        "engine": engine,
        "version": version,
        "input_ids": list(input_ids),
        "block_size": block_size,
        "spans": [span.told() for span in spans],
        "cache_salt": cache_salt,
        "extra_key": extra_key,
    }
    names: list[str] = (yield from ask_json(session, "/blocks", body))["blocks"]
    return names


def info(session: Session) -> Steps[dict[str, Any]]:
    """What the service can do, and how far it goes."""
    told: dict[str, Any] = document((yield from ask(session, Request("GET", "/info"))))
    return told


def health(_session: Session) -> Steps[bool]:
    """Whether the service answers at all; asked once."""
    return (yield from _answers("/health"))


def ready(_session: Session) -> Steps[bool]:
    """Whether calls may come; asked once."""
    return (yield from _answers("/ready"))


def _answers(path: str) -> Steps[bool]:
    try:
        yield from ask_once(Request("GET", path))
    except ServiceError:
        return False
    return True
