"""Methods of both clients for requests and prompts: `/annotate`, `/plan`, `/pad` and `/blocks`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any, NamedTuple

from mmhash.client.effects import RESPONSE_BASE, Effects, RunInThread, given
from mmhash.client.items import ExpectedItem, Item
from mmhash.client.payload import Of
from mmhash.client.responses import malformed, member
from mmhash.client.retry import post_json
from mmhash.client.session import Session
from mmhash.digest import Algorithm, Digest, check_algorithm
from mmhash.engines.engine import Span
from mmhash.engines.releases import Fallback
from mmhash.errors import InputTypeError, InputValueError

_MIB = 1 << 20

# The JSON of a 64-bit number, and of a hash of at most 512 bits and its id.
_ID_BYTES = 24
_BLOCK_BYTES = 160
_BLOCK = re.compile("(?:[0-9a-f]{2}){8,64}")

# The ids and blocks of a prompt of 300 000 tokens.
_PLAN_BASE = 64 * _MIB


class Blocks(NamedTuple):
    """The keys of a prompt's blocks, in hex, and their ids in the engine's KV events.

    `groups` has the same for each size in the request. `recipe` is the release that the service
    used in place of an unknown one.
    """

    blocks: list[str]
    event_ids: list[int]
    groups: dict[int, "Blocks"] | None = None
    recipe: str | None = None


class Annotated(NamedTuple):
    """A request with its items' keys inserted, ready to forward, and the items in their order."""

    request: dict[str, Any]
    items: list[Item]


def annotate(  # noqa: D417  (a method has no session)
    session: Session,
    request: Mapping[str, Any],
    *,
    engine: str,
    algorithm: Algorithm = "blake3",
    of: Of = "bytes",
    sign: bool = False,
    engine_fallback: Fallback | None = None,
) -> Effects[Annotated]:
    """Insert the hash of each image, video and audio into a request.

    Args:
        request: A chat request, or SGLang's native one.
        engine: The engine that receives it, and its release: `"sglang@0.5.23"`.
        algorithm: The algorithm of the digests.
        of: With `"pixels"`, images are hashed by their pixels.
        sign: Insert the service's tags too, for its guard in front of the engine.
        engine_fallback: With `"nearest-older"`, an unknown release is answered by an older one, and
            `recipe` names it.
    """
    _check_text("engine", engine)
    _check_of(of)
    query = {
        "engine": engine,
        "algorithm": check_algorithm(algorithm),
        "of": of,
        "sign": str(int(bool(sign))),
        **given(engine_fallback=engine_fallback),
    }
    # The response has the request, perhaps escaped, and a hash and an item for each medium.
    payload = yield from post_json(session, "/annotate", request, query, limit=_MIB, per_byte=4)
    expected = ExpectedItem(check_algorithm(algorithm), frozenset({engine}))
    items = [Item.parse(item, expected) for item in member(payload, "items", list)]
    return Annotated(member(payload, "request", dict), items)


class PlannedPrompt(NamedTuple):
    """A prompt as the engine will see it, and the request with the hashes of its items.

    `items` has what docs/http.md lists for `POST /plan`: each item's key, size and place. `recipe`
    is the release that the service used in place of an unknown one.
    """

    token_ids: list[int]
    items: list[dict[str, Any]]
    spans: list[Span]
    blocks: list[str]
    event_ids: list[int]
    request: dict[str, Any]
    recipe: str | None = None


def plan(  # noqa: D417  (a method has no session)
    session: Session,
    request: Mapping[str, Any],
    *,
    model: str,
    engine: str,
    of: Of = "bytes",
    block_size: int | None = None,
    block_algorithm: str | None = None,
    seed: str | None = None,
    lora: str | None = None,
    lora_path: str | None = None,
    lookahead: int | None = None,
    model_id: str | None = None,
    engine_fallback: Fallback | None = None,
) -> Effects[PlannedPrompt]:
    """Return the ids, spans and block keys of a request's prompt, before an engine sees it.

    Args:
        request: A chat request, or SGLang's native one.
        model: A name in the service's setting `models`.
        engine: The engine that receives it, and its release: `"vllm@0.32.0"`.
        of: With `"pixels"`, images are hashed by their pixels.
        block_size: The number of tokens that the engine hashes at once.
        block_algorithm: vLLM's `--prefix-caching-hash-algo`.
        seed: The PYTHONHASHSEED of vLLM.
        lora: The name of a LoRA adapter.
        lora_path: Its path, which vLLM binds from 0.31 on.
        lookahead: The number of tokens after a block that vLLM counts to it.
        model_id: The engine's name of the model.
        engine_fallback: With `"nearest-older"`, an unknown release is answered by an older one, and
            `recipe` names it.
    """
    _check_text("model", model)
    _check_text("engine", engine)
    _check_of(of)
    query = {"model": model, "engine": engine, "of": of}
    options = given(
        block_size=block_size,
        block_algorithm=block_algorithm,
        seed=seed,
        lora=lora,
        lora_path=lora_path,
        lookahead=lookahead,
        model_id=model_id,
        engine_fallback=engine_fallback,
    )
    query |= {name: str(value) for name, value in options.items()}
    # An image of a few bytes can stand for thousands of tokens, each with a block of its own.
    payload = yield from post_json(session, "/plan", request, query, limit=_PLAN_BASE, per_byte=4)
    return _parse_plan(payload)


def _parse_plan(payload: Any) -> PlannedPrompt:
    token_ids: list[int] = member(payload, "token_ids", list)
    if not all(type(token) is int for token in token_ids):
        malformed("one of its ids is not an integer")
    spans = [_parse_span(span, len(token_ids)) for span in member(payload, "spans", list)]
    keys, event_ids = _keys_and_ids(payload)
    items: list[dict[str, Any]] = member(payload, "items", list)
    if not all(isinstance(item, dict) for item in items):
        malformed("one of its items is not an object")
    request = member(payload, "request", dict)
    return PlannedPrompt(token_ids, items, spans, keys, event_ids, request, _recipe(payload))


def _parse_span(span: Any, ids: int) -> Span:
    start, end = (member(span, name, int) for name in ("start", "end"))
    if not 0 <= start < end <= ids:
        malformed("a span is not a range of its ids")
    try:
        return Span(start, end, Digest("blake3", bytes.fromhex(member(span, "key", str))))
    except ValueError:
        malformed("the key of a span is not hex")


def pad(  # noqa: D417  (a method has no session)
    session: Session,
    input_ids: Sequence[int],
    spans: Iterable[Span],
    *,
    engine: str = "sglang",
    engine_fallback: Fallback | None = None,
) -> Effects[list[int]]:
    """Replace the placeholders of each span with the pad values of the engine.

    Args:
        input_ids: The token ids of a prompt.
        spans: A `Span` for each item.
        engine: SGLang, and its release.
        engine_fallback: With `"nearest-older"`, an unknown release gets the pad values of an older
            one; without, it is refused.
    """
    ids, span_payloads = _ids(input_ids), _span_payloads(spans)
    body = {"engine": engine, "input_ids": ids, "spans": span_payloads}
    body |= given(engine_fallback=engine_fallback)
    limit = RESPONSE_BASE + _ID_BYTES * len(ids)
    payload = yield from post_json(session, "/pad", body, limit=limit)
    padded: list[int] = member(payload, "input_ids", list)
    yield RunInThread(lambda: _check_padded(padded, ids, span_payloads))
    return padded


def blocks(  # noqa: D417  (a method has no session)
    session: Session,
    input_ids: Sequence[int],
    block_size: int,
    *,
    engine: str,
    spans: Iterable[Span] = (),
    cache_salt: str | None = None,
    extra_key: str | None = None,
    algorithm: str | None = None,
    seed: str | None = None,
    lora: Mapping[str, str] | None = None,
    lookahead: int | None = None,
    groups: Sequence[int] | None = None,
    engine_fallback: Fallback | None = None,
) -> Effects[Blocks]:
    """Return the keys of a prompt's blocks in the cache of an engine.

    The service refuses an argument that the engine does not have.

    Args:
        input_ids: The token ids of a prompt.
        block_size: The number of tokens that the engine hashes at once.
        engine: The engine and its release: `"vllm@0.32.0"`.
        spans: A `Span` for each item.
        cache_salt: The salt in the request, if it has one.
        extra_key: SGLang's extra key, if the request has one.
        algorithm: vLLM's `--prefix-caching-hash-algo`.
        seed: The PYTHONHASHSEED of vLLM.
        lora: The `name` of an adapter and, for vLLM, its `path`.
        lookahead: The number of tokens after a block that vLLM counts to it.
        groups: The block sizes of the KV-cache groups: multiples of `block_size`.
        engine_fallback: With `"nearest-older"`, an unknown release is answered by an older one, and
            `recipe` names it.
    """
    ids = _ids(input_ids)
    _check_block_size(block_size)
    body = {
        "engine": engine,
        "input_ids": ids,
        "block_size": block_size,
        "spans": _span_payloads(spans),
    }
    body |= given(
        cache_salt=cache_salt,
        extra_key=extra_key,
        algorithm=algorithm,
        seed=seed,
        lora=None if lora is None else dict(lora),
        lookahead=lookahead,
        groups=None if groups is None else list(groups),
        engine_fallback=engine_fallback,
    )
    limit = RESPONSE_BASE + _BLOCK_BYTES * -(-len(ids) // block_size) * (1 + len(groups or ()))
    payload = yield from post_json(session, "/blocks", body, limit=limit)
    # With a lookahead, vLLM does not hash the blocks that lack tokens after them.
    ahead = max(0, lookahead or 0)
    result = _parse_blocks(payload, len(ids), block_size, ahead)
    if groups is not None:
        result = result._replace(groups=_parse_groups(payload, len(ids), list(groups), ahead))
    return result._replace(recipe=_recipe(payload))


def _parse_blocks(payload: Any, ids: int, block_size: int, lookahead: int) -> Blocks:
    """Validate the keys and ids of blocks of one size."""
    keys, event_ids = _keys_and_ids(payload)
    full = max(0, ids - lookahead) // block_size
    started = -(-ids // block_size)  # SGLang has a key of the last page even if it is not full
    if not full <= len(keys) <= started:
        malformed(f"it has {len(keys)} blocks, not {full}")
    return Blocks(keys, event_ids)


def _parse_groups(payload: Any, ids: int, sizes: list[int], lookahead: int) -> dict[int, Blocks]:
    """Validate the blocks of each block size in the request."""
    groups = member(payload, "groups", list)
    if not all(isinstance(group, dict) for group in groups):
        malformed("a group of blocks is not an object")
    if [group.get("block_size") for group in groups] != sizes:
        malformed("its groups are not those of the request")
    return {
        size: _parse_blocks(group, ids, size, lookahead)
        for size, group in zip(sizes, groups, strict=True)
    }


def _keys_and_ids(payload: Any) -> tuple[list[str], list[int]]:
    """Return the keys of blocks and their ids in events, one for each key."""
    keys: list[str] = member(payload, "blocks", list)
    event_ids: list[int] = member(payload, "event_ids", list)
    if not all(isinstance(key, str) and _BLOCK.fullmatch(key) for key in keys):
        malformed("a block's key is not hex")
    if len(event_ids) != len(keys) or not all(type(number) is int for number in event_ids):
        malformed("its 'event_ids' are not an integer for each block")
    return keys, event_ids


def _recipe(payload: Mapping[str, Any]) -> str | None:
    recipe = payload.get("recipe")
    if recipe is not None and not isinstance(recipe, str):
        malformed("its 'recipe' is not a text")
    return recipe


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise InputTypeError(f"{name} is a str, not {type(value).__name__}")


def _check_of(of: Any) -> None:
    if of not in {"bytes", "pixels"}:
        raise InputValueError(f"of is bytes or pixels, not {of!r}")


def _check_block_size(block_size: Any) -> None:
    if isinstance(block_size, bool) or not isinstance(block_size, int):
        raise InputTypeError(f"block_size is an int, not {type(block_size).__name__}")
    if block_size < 1:
        raise InputValueError(f"block_size is at least 1, not {block_size}")


def _ids(input_ids: Any) -> list[int]:
    """Convert ids, such as numpy's, to Python integers."""
    try:
        return [index(token) for token in input_ids]
    except TypeError:
        raise InputTypeError("input_ids is a sequence of integers") from None


def _span_payloads(spans: Any) -> list[dict[str, Any]]:
    try:
        listed = list(spans)
    except TypeError:
        raise InputTypeError("spans is an iterable of Span") from None
    for span in listed:
        if not isinstance(span, Span) or type(span.key) not in {Digest, type(None)}:
            raise InputTypeError("spans is an iterable of Span, each with a Digest as its key")
    return [span.payload() for span in listed]


def _check_padded(padded: list[Any], ids: list[int], spans: list[dict[str, Any]]) -> None:
    """Raise if the ids differ in number, are not integers, or are changed outside the spans."""
    if len(padded) != len(ids):
        malformed(f"it has {len(padded)} ids, not {len(ids)}")
    if not all(type(token) is int for token in padded):
        malformed("one of its ids is not an integer")
    expected = list(ids)
    for span in spans:
        expected[span["start"] : span["end"]] = padded[span["start"] : span["end"]]
    if padded != expected:
        malformed("an id outside the spans has changed")
