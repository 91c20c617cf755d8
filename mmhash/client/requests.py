"""Methods of both clients for whole requests: `/annotate` and `/plan`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from mmhash.arguments import check_choice, check_str
from mmhash.client.effects import Effects, given
from mmhash.client.items import ExpectedItem, Item
from mmhash.client.payload import Of
from mmhash.client.responses import malformed, member
from mmhash.client.retry import post_json
from mmhash.client.session import Session
from mmhash.client.token_ids import keys_and_ids, recipe_of
from mmhash.digest import Algorithm, Digest, check_algorithm
from mmhash.engines.engine import Span
from mmhash.engines.releases import Fallback

_MIB = 1 << 20

# The ids and blocks of a prompt of 300 000 tokens.
_PLAN_BASE = 64 * _MIB


class Annotated(NamedTuple):
    """A request with its items' keys inserted, ready to forward, and the items in their order."""

    request: dict[str, Any]
    items: list[Item]


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
    check_str("engine", engine)
    check_choice("of", of, "bytes", "pixels")
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
    check_str("model", model)
    check_str("engine", engine)
    check_choice("of", of, "bytes", "pixels")
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
    keys, event_ids = keys_and_ids(payload)
    items: list[dict[str, Any]] = member(payload, "items", list)
    if not all(isinstance(item, dict) for item in items):
        malformed("one of its items is not an object")
    request = member(payload, "request", dict)
    return PlannedPrompt(token_ids, items, spans, keys, event_ids, request, recipe_of(payload))


def _parse_span(span: Any, ids: int) -> Span:
    start, end = (member(span, name, int) for name in ("start", "end"))
    if not 0 <= start < end <= ids:
        malformed("a span is not a range of its ids")
    try:
        return Span(start, end, Digest("blake3", bytes.fromhex(member(span, "key", str))))
    except ValueError:
        malformed("the key of a span is not hex")
