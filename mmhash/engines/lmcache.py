"""LMCache's token values: an item's identity, written over its placeholder tokens.

LMCache names chunks of a prompt by their token ids, and the placeholders of all items are equal.
So it first replaces them by values derived from the identifier that vLLM gives the item.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from mmhash.digest import Digest
from mmhash.engines import checks, engine
from mmhash.engines.engine import Engine, RequestFields, Step, hash_field
from mmhash.engines.releases import Range, Releases
from mmhash.engines.vllm.block_items import Span as Span  # noqa: PLC0414  (a public name)
from mmhash.errors import InputTypeError, InputValueError

# "hex": 16 bits of an identifier that is a hex number, for every position. "text": the same, and
# any other identifier by its SHA-256. "positions": 31 bits of its own for every position.
Recipe = Literal["hex", "text", "positions"]

# Read in the wheels of all releases from 0.3.9 on, and of 0.3.4 to 0.3.7.
RELEASES: Releases[Recipe] = Releases(
    "lmcache",
    Range("0.3.4", "0.3.12", "hex"),
    Range("0.3.13", "0.5.4", "text"),
    Range("0.5.5", "0.5.6", "positions"),
)
LATEST = RELEASES.latest

_HEX = re.compile(r"(?:0[xX])?([0-9a-fA-F]+)", re.ASCII)
_VALUES_PER_DIGEST = 8
_MASK_31 = (1 << 31) - 1


def identifier(key: Digest) -> str:
    """Return the identifier to send to vLLM as the item's uuid: the key as 64 hex digits."""
    return key.hex()


def token_values(identifier: str, length: int, *, version: str = LATEST) -> list[int]:
    """Return the values that replace an item's `length` placeholders."""
    recipe = RELEASES.recipe(version)
    checks.text("identifier", identifier)
    checks.whole("length", length, 0, checks.MAX_TOKENS)
    if recipe == "positions":
        return _values_by_position(identifier, length)
    return [_value_of_16_bits(identifier, recipe)] * length


def substitute(
    tokens: Sequence[int], spans: Sequence[Span | engine.Span], *, version: str = LATEST
) -> list[int]:
    """Return the token ids that LMCache hashes: each span holds its item's values.

    `tokens` is a prompt or the beginning of one: a span that reaches past its end is cut.
    """
    RELEASES.recipe(version)
    substituted = checks.token_list("tokens", tokens)
    for span in checks.listed("spans", spans):
        if isinstance(span, engine.Span):
            span = Span(identifier(span.whole_key()), span.start, span.end - span.start)  # noqa: PLW2901
        if not isinstance(span, Span):
            raise InputTypeError(f"spans holds Spans, not {type(span).__name__}")
        checks.whole("a span's offset", span.offset)
        checks.whole("a span's length", span.length)
        if span.offset >= len(substituted):
            continue
        length = min(span.length, len(substituted) - span.offset)
        values = token_values(span.identifier, length, version=version)
        substituted[span.offset : span.offset + length] = values
    return substituted


def _values_by_position(identifier: str, length: int) -> list[int]:
    """Expand the identifier's SHA-256 in counter mode, eight 31-bit values a block."""
    seed = hashlib.sha256(identifier.encode()).digest()
    blocks = -(-length // _VALUES_PER_DIGEST)
    stream = b"".join(
        hashlib.sha256(seed + counter.to_bytes(8, "big")).digest() for counter in range(blocks)
    )
    values: list[int] = (np.frombuffer(stream, ">u4") & _MASK_31).tolist()
    return values[:length]


def _value_of_16_bits(identifier: str, recipe: Recipe) -> int:
    if recipe == "hex":
        try:
            return int(identifier, 16) & 0xFFFF
        except ValueError:
            raise InputValueError(
                "lmcache before 0.3.13 takes only an identifier that is a hex number"
            ) from None
    text = identifier.strip()
    if (match := _HEX.fullmatch(text)) is not None:
        return int(match[1][-4:], 16)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:2], "big")


def _first_values(key: Digest, version: str) -> list[int]:
    """Return the values of the first positions, or the one value that all positions have."""
    by_position = RELEASES.recipe(version) == "positions"
    return token_values(identifier(key), _VALUES_PER_DIGEST if by_position else 1, version=version)


def _request_fields(key: Digest, version: str) -> RequestFields:
    return {"uuid": identifier(key), "token_values": _first_values(key, version)}


def _explain(key: Digest, version: str) -> Iterator[Step]:
    yield "send to vLLM as uuid of the content part", identifier(key)
    values = _first_values(key, version)
    what = "the first placeholders become" if len(values) > 1 else "each placeholder becomes"
    yield what, " ".join(map(str, values))


ENGINE = Engine(
    name="lmcache",
    title="LMCache",
    releases=RELEASES,
    explain=_explain,
    fields_of_key=_request_fields,
    hashes_of_key=lambda key: (identifier(key),),
    hash_fields=(
        hash_field(
            "0.3.4 to 0.5.6",
            "OpenAI route of vLLM",
            "`uuid` on the content part",
            "`lmcache.identifier(key)`: 64 hex digits",
        ),
    ),
)
