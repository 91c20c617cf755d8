"""The calls that both clients share: what each call sends, and how to read the response."""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from os import PathLike
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, Unpack

from mmhash.arguments import check_choice, check_int, check_str
from mmhash.client.exchange import Payload, Request
from mmhash.client.results import (
    Annotated,
    AnnotatedRequest,
    Blocks,
    Hashed,
    Item,
    Padded,
    PlannedPrompt,
    parse,
)
from mmhash.digest import Algorithm, check_algorithm
from mmhash.engines.engine import BlockOptions, Span
from mmhash.engines.registry import split_names
from mmhash.errors import InputTypeError, InputValueError
from mmhash.io.files import map_file
from mmhash.pil_image import is_image
from mmhash.split import LISTS
from mmhash.view import view_of

T = TypeVar("T")

Of = Literal["bytes", "pixels"]

# On a Unix socket, items of at least this size are passed in shared memory. Smaller items are just
# as fast in the body.
SHM_MIN_BYTES = 1 << 20
# Items up to this size share a request, because a separate request costs more than base64.
BATCH_ITEM_MAX = 64 << 10
# 100 items of that size are 8.4 MiB of JSON. By default the service accepts 16 MiB.
BATCH_MAX_ITEMS = 100

_JSON = "application/json"
_Query = dict[str, str]


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """The requests of a call, which are sent one after another, and the reader of the responses."""

    requests: Sequence[Request]
    read: Callable[[list[bytes]], T]


def hash_items(
    items: Any,
    *,
    algorithm: Algorithm = "blake3",
    of: Of = "bytes",
    engines: str | Iterable[str] = (),
    sign: bool = False,
) -> Call[list[Item]]:
    """Hash one item, or each item of a list.

    Args:
        items: Bytes, a numpy array, a torch tensor, the path of a file as a `pathlib.Path`, or a
            list of these.
        algorithm: The algorithm of the digests.
        of: With `"pixels"`, bytes and files are images whose pixels are hashed.
        engines: The engines to return request fields for: `["sglang@0.5.23", "vllm"]`, or
            `"sglang@0.5.23,vllm"`.
        sign: Return a tag for the guard of the only engine in `engines`.

    Returns:
        An `Item` for each item.
    """
    algorithm = check_algorithm(algorithm)
    check_choice("of", of, "bytes", "pixels")
    query = _given(
        algorithm=algorithm,
        engines=",".join(split_names(engines)) or None,
        sign=1 if sign else None,
    )
    item_list = items if isinstance(items, LISTS) else [items]
    payloads = [_payload(item, of) for item in item_list]
    groups = list(_groups([len(payload.content) for payload in payloads]))
    requests = []
    for group in groups:
        if len(group) == 1:
            requests.append(_item_request(query, payloads[group[0]]))
        else:
            body = {"items": [_json_item(payloads[number]) for number in group]}
            requests.append(_post_json("/hash", body, query))

    def read(bodies: list[bytes]) -> list[Item]:
        found: dict[int, Item] = {}
        for group, body in zip(groups, bodies, strict=True):
            found.update(zip(group, parse(body, Hashed).items, strict=True))
        return [found[number] for number in range(len(found))]

    return Call(requests, read)


def annotate(
    request: Mapping[str, Any],
    *,
    engine: str,
    algorithm: Algorithm = "blake3",
    of: Of = "bytes",
    sign: bool = False,
) -> Call[Annotated]:
    """Insert the hash of each image, video and audio into a request.

    Args:
        request: A chat request, or a native request of SGLang.
        engine: The engine that receives the request, and its release: `"sglang@0.5.23"`.
        algorithm: The algorithm of the digests.
        of: With `"pixels"`, images are hashed by their pixels.
        sign: Insert the service's tags too, for its guard in front of the engine.
    """
    check_choice("of", of, "bytes", "pixels")
    query = _given(
        engine=check_str("engine", engine),
        algorithm=check_algorithm(algorithm),
        of=of,
        sign=int(bool(sign)),
    )

    def read(body: bytes) -> Annotated:
        annotated = parse(body, AnnotatedRequest)
        return Annotated(annotated.request, annotated.items)

    return _call(_post_json("/annotate", request, query), read)


def plan(
    request: Mapping[str, Any],
    *,
    model: str,
    engine: str,
    of: Of = "bytes",
    block_size: int | None = None,
    model_id: str | None = None,
    **options: Unpack[BlockOptions],
) -> Call[PlannedPrompt]:
    """Return the token ids, spans and block keys of a request's prompt before an engine sees it.

    Args:
        request: A chat request, or a native request of SGLang.
        model: A name in the service's setting `models`.
        engine: The engine that receives the request, and its release: `"vllm@0.32.0"`.
        of: With `"pixels"`, images are hashed by their pixels.
        block_size: The number of tokens per block.
        model_id: The engine's name for the model.
        **options: The members of `mmhash.engines.BlockOptions`.
    """
    check_choice("of", of, "bytes", "pixels")
    query = _given(
        model=check_str("model", model),
        engine=check_str("engine", engine),
        of=of,
        block_size=block_size,
        model_id=model_id,
        request="true",
        **options,
    )
    return _call(_post_json("/plan", request, query), lambda body: parse(body, PlannedPrompt))


def pad(
    input_ids: Sequence[int],
    spans: Iterable[Span],
    *,
    engine: str = "sglang",
) -> Call[list[int]]:
    """Replace the placeholders of each span with the pad values of the engine.

    Args:
        input_ids: The token ids of a prompt.
        spans: A `Span` for each item.
        engine: SGLang, and its release.
    """
    body = {"engine": engine, "input_ids": _ids(input_ids), "spans": _spans(spans)}
    return _call(_post_json("/pad", body, {}), lambda answer: parse(answer, Padded).input_ids)


def blocks(
    input_ids: Sequence[int],
    block_size: int,
    *,
    engine: str,
    spans: Iterable[Span] = (),
    cache_salt: str | None = None,
    extra_key: str | None = None,
    **options: Unpack[BlockOptions],
) -> Call[Blocks]:
    """Return the keys of a prompt's blocks in the cache of an engine.

    The service refuses an argument that the engine does not support.

    Args:
        input_ids: The token ids of a prompt.
        block_size: The number of tokens per block.
        engine: The engine and its release: `"vllm@0.32.0"`.
        spans: A `Span` for each item.
        cache_salt: The salt in the request, if it has one.
        extra_key: SGLang's extra key, if the request has one.
        **options: The members of `mmhash.engines.BlockOptions`.
    """
    body = {
        "engine": engine,
        "input_ids": _ids(input_ids),
        "block_size": check_int("block_size", block_size, 1),
        "spans": _spans(spans),
    }
    body |= _present(
        cache_salt=cache_salt,
        extra_key=extra_key,
        **options,
    )
    return _call(_post_json("/blocks", body, {}), lambda answer: parse(answer, Blocks))


def info() -> Call[dict[str, Any]]:
    """Return the capabilities and limits of the service."""
    return _call(Request("GET", "/info"), lambda body: parse(body, dict[str, Any]))


def _call(request: Request, read: Callable[[bytes], T]) -> Call[T]:
    """Return a call that consists of one request."""
    return Call([request], lambda bodies: read(bodies[0]))


def _groups(sizes: list[int]) -> Iterator[list[int]]:
    """Yield the item numbers of each request: small items share a request."""
    batch: list[int] = []
    for number, size in enumerate(sizes):
        if size > BATCH_ITEM_MAX:
            yield [number]
            continue
        batch.append(number)
        if len(batch) == BATCH_MAX_ITEMS:
            yield batch
            batch = []
    if batch:
        yield batch


def _payload(item: Any, of: Of) -> Payload:
    """Return an item as the client sends it; bytes on the host are not copied."""
    if isinstance(item, PathLike):
        with Path(item).open("rb") as file:
            item = map_file(file) or file.read()
    if is_image(item):
        raise InputTypeError(
            "a PIL image cannot be sent: give its file's bytes with of='pixels', or hash it here"
            " with mmhash.key()"
        )
    view = view_of(item)
    if view.kind == "tensor":
        return Payload("tensor", view.on_host(), view.dtype, view.shape)
    return Payload("image" if of == "pixels" else "bytes", view.on_host())


def _item_request(query: _Query, payload: Payload) -> Request:
    content_type = "application/octet-stream"
    if payload.kind == "image":
        content_type = "image/x-any"  # the service detects the format
        query = query | {"of": "pixels"}
    elif payload.kind == "tensor":
        shape = ",".join(map(str, payload.shape))
        query = query | {"dtype": payload.dtype, "shape": shape}
    # Images never go through shared memory: the service decodes them in other processes.
    is_shareable = payload.kind != "image" and len(payload.content) >= SHM_MIN_BYTES
    shareable = payload if is_shareable else None
    return Request("POST", "/hash", query, content_type, payload.content, shareable)


def _json_item(payload: Payload) -> dict[str, Any]:
    item: dict[str, Any] = {
        "kind": payload.kind,
        "data": base64.b64encode(payload.content).decode(),
    }
    if payload.kind == "tensor":
        item |= {"dtype": payload.dtype, "shape": list(payload.shape)}
    return item


def _present(**fields: Any) -> dict[str, Any]:
    """Return the fields that the caller has given."""
    return {name: value for name, value in fields.items() if value is not None}


def _given(**fields: Any) -> _Query:
    """Return, as a query, the fields that the caller has given."""
    return {name: str(value) for name, value in _present(**fields).items()}


def _post_json(path: str, body: Any, query: _Query) -> Request:
    """Return a POST request with a JSON body."""
    try:
        # Not msgspec, which writes NaN as null and sets as lists.
        text = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except TypeError as error:
        raise InputTypeError(f"the request cannot be written as JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InputValueError(f"the request cannot be written as JSON: {error}") from None
    return Request("POST", path, query, _JSON, memoryview(text))


def _ids(input_ids: Any) -> list[int]:
    """Convert ids, for example numpy's, to Python integers."""
    try:
        return [index(token) for token in input_ids]
    except TypeError:
        raise InputTypeError("input_ids must be a sequence of integers") from None


def _spans(spans: Any) -> list[dict[str, Any]]:
    try:
        return [span.payload() for span in spans]
    except (TypeError, AttributeError):
        raise InputTypeError("spans must be an iterable of Span") from None
