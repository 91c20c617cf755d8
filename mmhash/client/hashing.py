"""`POST /hash`, for items of any size.

On a Unix socket large items are passed in shared memory. Otherwise each is the body of a request,
sent in chunks without a copy of the whole. Small items share a JSON request.
"""

import base64
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

from mmhash.client.effects import RESPONSE_BASE, Effects, Request, RunInThread, given
from mmhash.client.items import ExpectedItem, Item, parse_items
from mmhash.client.payload import Of, Payload, payload_of
from mmhash.client.probes import INFO, parse_info
from mmhash.client.responses import document
from mmhash.client.retry import post_json, send_once, send_with_retry
from mmhash.client.session import POOL_BYTES, Session
from mmhash.digest import Algorithm, check_algorithm
from mmhash.engines.registry import split_names
from mmhash.engines.releases import Fallback
from mmhash.errors import InputValueError, ServiceError, TransportError
from mmhash.split import LISTS

# From here on shared memory is faster: 2 MiB take 2.2 ms, and 3.7 ms as a body; 20 MiB 5.3 and
# 19.9 ms; 1 MiB 2 ms either way.
SHM_MIN_BYTES = 1 << 20
# Up to here items share a request: 16 of 64 KiB take 4.5 ms together, and 12.5 ms one by one.
BATCH_ITEM_MAX = 64 << 10
# 100 items of that size are 8.4 MiB of JSON; the service accepts 16 by default.
BATCH_MAX_ITEMS = 100

# The maximum of an item in a response, and of the fields of an engine.
_ITEM_BYTES = 4 << 10

_Query = dict[str, str]

# The service detects the format.
_ANY_IMAGE = "image/x-any"
_RAW = "application/octet-stream"

# The service does not see this memory, or not any more.
_NOT_FOUND = "urn:mmhash:problem:invalid-handle"


def hash_items(  # noqa: D417  (a method has no session)
    session: Session,
    items: Any,
    *,
    algorithm: Algorithm = "blake3",
    of: Of = "bytes",
    engines: str | Iterable[str] = (),
    sign: bool = False,
    engine_fallback: Fallback | None = None,
) -> Effects[list[Item]]:
    """Hash one item, or each of a list.

    Args:
        items: Bytes, a numpy array, a torch tensor, a PIL image, the path of a file as a
            `pathlib.Path`, or a list of these.
        algorithm: The algorithm of the digests.
        of: With `"pixels"`, bytes and files are images whose pixels are hashed; of PIL images they
            always are.
        engines: The engines whose request fields are wanted: `["sglang@0.5.23", "vllm"]`, or
            `"sglang@0.5.23,vllm"`.
        sign: Return a tag for the guard of the one engine in `engines`.
        engine_fallback: With `"nearest-older"`, an unknown release gets the fields of an older one,
            and the `recipe` that was used; without, it is refused.

    Returns:
        An `Item` for each item.
    """
    algorithm = check_algorithm(algorithm)
    if of not in {"bytes", "pixels"}:
        raise InputValueError(
            f"of is bytes or pixels, not {of!r}; video() and audio() hash clips under a recipe"
        )
    query: _Query = given(
        algorithm=algorithm,
        engines=",".join(split_names(engines)) or None,
        engine_fallback=engine_fallback,
        sign="1" if sign else None,
    )
    item_list = items if isinstance(items, LISTS) else [items]
    payloads: list[Payload] = yield RunInThread(
        lambda: [payload_of(item, of) for item in item_list]
    )
    if any(map(_is_large, payloads)) and (yield from _reads_shared_memory(session)):
        try:
            hashed = yield from _hash(session, query, payloads, in_place=True)
        except TransportError:
            pass  # no room now; later calls try again
        except ServiceError as error:
            if error.type != _NOT_FOUND:
                raise
            # If the service has never found a segment, it has another /dev/shm.
            session.in_place = session.has_shared
        else:
            session.has_shared = True
            return hashed
    return (yield from _hash(session, query, payloads, in_place=False))


def _is_large(payload: Payload) -> bool:
    """Return True if shared memory is faster; images are sent, because the service decodes them."""
    return payload.kind != "image" and len(payload.content) >= SHM_MIN_BYTES


def _reads_shared_memory(session: Session) -> Effects[bool]:
    """Return True if the service reads shared memory; request it until there is a response."""
    if session.in_place is None:
        try:
            info = parse_info(document((yield from send_once(session, INFO))))
        except ServiceError:
            return False
        session.in_place = "shm" in info["in_place"]
    return session.in_place


def _hash(
    session: Session, query: _Query, payloads: list[Payload], *, in_place: bool
) -> Effects[list[Item]]:
    """Hash small items, and those in shared memory, in batches, and the others one by one."""
    batch_item_max = BATCH_ITEM_MAX if len(payloads) > 1 else -1
    batched = [
        index
        for index, payload in enumerate(payloads)
        if (in_place and _is_large(payload)) or len(payload.content) <= batch_item_max
    ]
    items: dict[int, Item] = {}
    for batch in batches([len(payloads[index].content) for index in batched]):
        indexes = [batched[position] for position in batch]
        hashed = yield from _hash_batch(session, query, [payloads[index] for index in indexes])
        items.update(zip(indexes, hashed, strict=True))
    for index, payload in enumerate(payloads):
        if index not in items:
            items[index] = yield from _hash_one(session, query, payload)
    return [items[index] for index in range(len(payloads))]


def batches(sizes: list[int]) -> Iterator[list[int]]:
    """Yield the positions of the items of each request, together no larger than the pool."""
    batch: list[int] = []
    nbytes = 0
    for position, size in enumerate(sizes):
        if len(batch) == BATCH_MAX_ITEMS or (batch and nbytes + size > POOL_BYTES):
            yield batch
            batch, nbytes = [], 0
        batch.append(position)
        nbytes += size
    if batch:
        yield batch


def _hash_batch(session: Session, query: _Query, payloads: list[Payload]) -> Effects[list[Item]]:
    with ExitStack() as shared:

        def build_body() -> dict[str, Any]:
            return {"items": [_describe(session, payload, shared) for payload in payloads]}

        expected = [_expected(query, payload) for payload in payloads]
        body = yield RunInThread(build_body)
        response = yield from post_json(session, "/hash", body, query, limit=_limit(expected))
    return parse_items(response, expected)


def _expected(query: _Query, payload: Payload) -> ExpectedItem:
    """Return the fields that the response must have for a payload."""
    engines = frozenset(query["engines"].split(",")) if "engines" in query else frozenset[str]()
    algorithm = check_algorithm(query["algorithm"])
    kind, dtype, shape, _, nbytes = payload
    return ExpectedItem(algorithm, engines, kind, dtype, shape, nbytes)


def _limit(expected: list[ExpectedItem]) -> int:
    """Return the maximum length of the response."""
    return RESPONSE_BASE + sum(_ITEM_BYTES * (1 + len(item.engines)) for item in expected)


def _describe(session: Session, payload: Payload, shared: ExitStack) -> dict[str, Any]:
    """Return a payload as an item of a JSON body: its bytes, or their handle if it is large."""
    kind, dtype, shape, content, _ = payload
    tensor_fields = {"dtype": dtype, "shape": list(shape or ())} if kind == "tensor" else {}
    if not _is_large(payload):
        return {"kind": kind, "data": base64.b64encode(content).decode()} | tensor_fields
    handle = shared.enter_context(session.share(content))
    return {"kind": kind, "shm": handle | tensor_fields}


def _hash_one(session: Session, query: _Query, payload: Payload) -> Effects[Item]:
    kind, dtype, shape, content, _ = payload
    kind_query: _Query = {}
    if kind == "image":
        kind_query = {"of": "pixels"}
    elif kind == "tensor":
        kind_query = {"dtype": dtype, "shape": ",".join(map(str, shape or ()))}
    content_type = _ANY_IMAGE if kind == "image" else _RAW
    expected = [_expected(query, payload)]
    request = Request("POST", "/hash", query | kind_query, content_type, content, _limit(expected))
    (item,) = parse_items(document((yield from send_with_retry(session, request))), expected)
    return item
