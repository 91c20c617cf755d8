"""Methods of both clients for prompts as token ids: `/pad` and `/blocks`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import Any, NamedTuple

from mmhash.arguments import check_int
from mmhash.client.effects import RESPONSE_BASE, Effects, RunInThread, given
from mmhash.client.responses import malformed, member
from mmhash.client.retry import post_json
from mmhash.client.session import Session
from mmhash.digest import Digest
from mmhash.engines.engine import Span
from mmhash.engines.releases import Fallback
from mmhash.errors import InputTypeError

# The JSON of a 64-bit number, and of a hash of at most 512 bits and its id.
_ID_BYTES = 24
_BLOCK_BYTES = 160
_BLOCK = re.compile("(?:[0-9a-f]{2}){8,64}")


class Blocks(NamedTuple):
    """The keys of a prompt's blocks, in hex, and their ids in the engine's KV events.

    `groups` has the same for each size in the request. `recipe` is the release that the service
    used in place of an unknown one.
    """

    blocks: list[str]
    event_ids: list[int]
    groups: dict[int, "Blocks"] | None = None
    recipe: str | None = None


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
    block_algorithm: str | None = None,
    seed: str | None = None,
    lora: str | None = None,
    lora_path: str | None = None,
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
        block_algorithm: vLLM's `--prefix-caching-hash-algo`.
        seed: The PYTHONHASHSEED of vLLM.
        lora: The name of a LoRA adapter.
        lora_path: Its path, which vLLM binds from 0.31 on.
        lookahead: The number of tokens after a block that vLLM counts to it.
        groups: The block sizes of the KV-cache groups: multiples of `block_size`.
        engine_fallback: With `"nearest-older"`, an unknown release is answered by an older one, and
            `recipe` names it.
    """
    ids = _ids(input_ids)
    check_int("block_size", block_size, 1)
    body = {
        "engine": engine,
        "input_ids": ids,
        "block_size": block_size,
        "spans": _span_payloads(spans),
    }
    body |= given(
        cache_salt=cache_salt,
        extra_key=extra_key,
        block_algorithm=block_algorithm,
        seed=seed,
        lora=lora,
        lora_path=lora_path,
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
    return result._replace(recipe=recipe_of(payload))


def _parse_blocks(payload: Any, ids: int, block_size: int, lookahead: int) -> Blocks:
    """Validate the keys and ids of blocks of one size."""
    keys, event_ids = keys_and_ids(payload)
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


def keys_and_ids(payload: Any) -> tuple[list[str], list[int]]:
    """Return the keys of blocks and their ids in events, one for each key."""
    keys: list[str] = member(payload, "blocks", list)
    event_ids: list[int] = member(payload, "event_ids", list)
    if not all(isinstance(key, str) and _BLOCK.fullmatch(key) for key in keys):
        malformed("a block's key is not hex")
    if len(event_ids) != len(keys) or not all(type(number) is int for number in event_ids):
        malformed("its 'event_ids' are not an integer for each block")
    return keys, event_ids


def recipe_of(payload: Mapping[str, Any]) -> str | None:
    """Return the release that the service used in place of an unknown one."""
    recipe = payload.get("recipe")
    if recipe is not None and not isinstance(recipe, str):
        malformed("its 'recipe' is not a text")
    return recipe


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
