"""`POST /hash`, for items of any size.

What is long is laid into shared memory if the service reads it there, and is else sent by itself,
piece by piece from where it lies. What is short goes together, in one document.
"""

import base64
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from mmhash.client.answers import Asked, Item, document, parse_items
from mmhash.client.calls import INFO, parse_info
from mmhash.client.effects import ANSWER_BASE, Effects, Request, RunInThread
from mmhash.client.payload import Of, Payload, payload_of
from mmhash.client.retry import post_json, send_once, send_with_retry
from mmhash.client.session import POOL_BYTES, Session
from mmhash.digest import Algorithm, check_algorithm
from mmhash.errors import InputTypeError, InputValueError, ServiceError, TransportError

# From here on shared memory pays: 2 MiB take 2.2 ms by it and 3.7 ms as a body, 20 MiB 5.3 and
# 19.9 ms, 1 MiB 2 ms either way.
SHM_MIN_BYTES = 1 << 20
# Up to here items of one call go together: 16 of 64 KiB take 4.5 ms so, and 12.5 ms one by one.
BATCH_ITEM_MAX = 64 << 10
# So many short items are 8.4 MiB of JSON, of the 16 that the service takes unless told otherwise.
BATCH_MAX_ITEMS = 100

# An answer about one item has less than this, and so has each engine's spelling of its key.
_ITEM_BYTES = 4 << 10

_Query = dict[str, str]

# The service looks at the bytes to see which.
_ANY_IMAGE = "image/x-any"
_RAW = "application/octet-stream"

# That the service reads no shared memory, or not ours.
_NOT_HERE = frozenset({"urn:mmhash:problem:other-host", "urn:mmhash:problem:in-place-off"})
# That what was laid down is not there any more.
_GONE = "urn:mmhash:problem:invalid-handle"


def hash_items(
    session: Session,
    items: Any,
    *,
    algorithm: Algorithm = "blake3",
    of: Of = "bytes",
    engines: str = "",
    sign: bool = False,
) -> Effects[list[Item]]:
    """Name one item, or each of a list: bytes-like, numpy array, torch tensor or PIL image.

    With `of="pixels"` bytes are the file of an image, hashed by its pixels, as PIL images always
    are. `engines` says who wants the key in his own spelling: `"sglang@0.5.23,vllm"`; with `sign`
    it is one, and each item has a tag for him.
    """
    given = items if isinstance(items, (list, tuple)) else [items]
    query: _Query = {"algorithm": check_algorithm(algorithm)}
    if of not in {"bytes", "pixels"}:
        raise InputValueError(f"of is bytes or pixels, not {of!r}")
    if not isinstance(engines, str):
        raise InputTypeError(f"engines is a str, not {type(engines).__name__}")
    payloads: list[Payload] = yield RunInThread(lambda: [payload_of(item, of) for item in given])
    if engines:
        query["engines"] = engines
    if sign:
        query["sign"] = "1"
    if any(map(_is_long, payloads)) and (yield from _is_read_in_place(session)):
        try:
            return (yield from _hash(session, query, payloads, in_place=True))
        except TransportError:
            pass  # no room, which there may be again
        except ServiceError as error:
            if error.type not in {*_NOT_HERE, _GONE}:
                raise
            session.in_place = error.type == _GONE
    return (yield from _hash(session, query, payloads, in_place=False))


def _is_long(payload: Payload) -> bool:
    """Whether it is worth shared memory; an image must be sent, for only there it is decoded."""
    return payload.kind != "image" and len(payload.content) >= SHM_MIN_BYTES


def _is_read_in_place(session: Session) -> Effects[bool]:
    """Whether the service says that it reads shared memory; asked until it says so or not."""
    if session.in_place is None:
        try:
            payload = parse_info(document((yield from send_once(session, INFO))))
        except ServiceError:
            return False
        session.in_place = "shm" in payload["in_place"]
    return session.in_place


def _hash(
    session: Session, query: _Query, payloads: list[Payload], *, in_place: bool
) -> Effects[list[Item]]:
    """The items of the parcels: together what may go so, all others one by one."""
    shortest = BATCH_ITEM_MAX if len(payloads) > 1 else -1
    together = [
        number
        for number, payload in enumerate(payloads)
        if (in_place and _is_long(payload)) or len(payload.content) <= shortest
    ]
    found: dict[int, Item] = {}
    for batch in batches([len(payloads[number].content) for number in together]):
        numbers = [together[at] for at in batch]
        items = yield from _hash_batch(session, query, [payloads[number] for number in numbers])
        found.update(zip(numbers, items, strict=True))
    for number, payload in enumerate(payloads):
        if number not in found:
            found[number] = yield from _hash_one(session, query, payload)
    return [found[number] for number in range(len(payloads))]


def batches(sizes: list[int]) -> Iterator[list[int]]:
    """The numbers of those that go in one document, no more of them than the pool holds."""
    batch: list[int] = []
    nbytes = 0
    for number, size in enumerate(sizes):
        if len(batch) == BATCH_MAX_ITEMS or (batch and nbytes + size > POOL_BYTES):
            yield batch
            batch, nbytes = [], 0
        batch.append(number)
        nbytes += size
    if batch:
        yield batch


def _hash_batch(session: Session, query: _Query, payloads: list[Payload]) -> Effects[list[Item]]:
    with ExitStack() as share:

        def payload() -> dict[str, Any]:
            body: dict[str, Any] = {
                "items": [_describe(session, payload, share) for payload in payloads]
            }
            return body | {"proof": session.proof()} if any(map(_is_long, payloads)) else body

        asked = [_asked(query, payload) for payload in payloads]
        body = yield RunInThread(payload)
        answer = yield from post_json(session, "/hash", body, query, limit=_limit(asked))
    return parse_items(answer, asked)


def _asked(query: _Query, payload: Payload) -> Asked:
    """The parcel as its answer has to describe it."""
    engines = frozenset(query["engines"].split(",")) if "engines" in query else frozenset[str]()
    algorithm = check_algorithm(query["algorithm"])
    return Asked(algorithm, engines, payload.kind, payload.dtype, payload.shape, payload.nbytes)


def _limit(asked: list[Asked]) -> int:
    """The longest answer about these items."""
    return ANSWER_BASE + sum(_ITEM_BYTES * (1 + len(one.engines)) for one in asked)


def _describe(session: Session, payload: Payload, share: ExitStack) -> dict[str, Any]:
    """The parcel as an item of a document: by its bytes, or if it is long by where they lie."""
    kind, dtype, shape, content, _ = payload
    what = {"dtype": dtype, "shape": list(shape or ())} if kind == "tensor" else {}
    if not _is_long(payload):
        return {"kind": kind, "data": base64.b64encode(content).decode()} | what
    handle = share.enter_context(session.share(content))
    return {"kind": kind, "shm": handle | what}


def _hash_one(session: Session, query: _Query, payload: Payload) -> Effects[Item]:
    kind, dtype, shape, content, _ = payload
    what: _Query = {}
    if kind == "image":
        what = {"of": "pixels"}
    elif kind == "tensor":
        what = {"dtype": dtype, "shape": ",".join(map(str, shape or ()))}
    content_type = _ANY_IMAGE if kind == "image" else _RAW
    asked = [_asked(query, payload)]
    request = Request("POST", "/hash", query | what, content_type, content, _limit(asked))
    (item,) = parse_items(document((yield from send_with_retry(session, request))), asked)
    return item
