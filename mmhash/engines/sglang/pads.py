"""Pad values: the token ids that stand for an image in SGLang's prefix cache."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple

from mmhash.arguments import check_bytes, check_int, check_text
from mmhash.digest import Digest
from mmhash.engines import checks, engine
from mmhash.engines.engine import Server
from mmhash.engines.sglang.releases import LATEST, RELEASES, Recipe, is_rust, require
from mmhash.errors import InputTypeError, InputValueError, shown

IDENTITY_SIZE = 32
_BASE = 1_000_000
_RUST_HASH = re.compile("(?:0x)?[0-9a-fA-F]+")
_MASK_62 = 2**62 - 1
_MASK_64 = 2**64 - 1

Hash = int | bytes | Digest
"""An item's 64-bit hash, its 32-byte identity, or a key, whose first 64 bits are the hash."""


class _FilledSpan(NamedTuple):
    """The placeholders of an item, from `start` up to but not including `end`."""

    start: int
    end: int
    hash: Hash


def mm_hash(key: Digest) -> str:
    """Return the text to send in a request's `mm_hashes`: exactly 16 hex digits."""
    return f"{checks.key('mm_hash', key).u64:016x}"


def parse_mm_hash(text: str, *, version: str = LATEST, server: Server = "python") -> int:
    """Return the hash that SGLang reads from an entry of `mm_hashes`: the low 64 bits.

    Like the engine, accept signs, `0x`, underscores, blanks and Unicode digits. The server in Rust
    accepts only ASCII digits after an optional `0x`. Raise an error where the engine would fall
    back to its own hash.
    """
    require(RELEASES.recipe(version).mm_hashes, "mm_hashes", "0.5.13", version)
    text = check_text("an mm_hash", text)
    number = None
    if not is_rust(server, version) or _RUST_HASH.fullmatch(text):
        with suppress(ValueError):
            number = int(text, 16)
    if number is None:
        raise InputValueError("an mm_hash must be hex digits: SGLang would ignore this one")
    return number & _MASK_64


def pad_values(hash_or_identity: Hash, *, version: str = LATEST) -> list[int]:
    """Return the pad values of an item: four since 0.5.23, one in older releases."""
    return _pads(hash_or_identity, RELEASES.recipe(version), version)


def padding(hash_or_identity: Hash, length: int, *, version: str = LATEST) -> list[int]:
    """Return the ids that fill a span of the given length."""
    length = check_int("length", length, 0, checks.MAX_TOKENS)
    return _cycle(pad_values(hash_or_identity, version=version), length)


def pad_input_ids(
    input_ids: Sequence[int],
    spans: Iterable[engine.Span | tuple[int, int, Hash]],
    *,
    version: str = LATEST,
) -> list[int]:
    """Return `input_ids` with each span of placeholders filled with pad values.

    A span is a `Span` of mmhash.engines or `(start, end, hash_or_identity)`, where `end` is
    exclusive. Spans must not overlap.
    """
    recipe = RELEASES.recipe(version)
    padded = _ids(input_ids)
    ordered = sorted(map(_span, checks.iterated("spans", spans)), key=lambda span: span[:2])
    for span in ordered:
        if not 0 <= span.start <= span.end <= len(padded):
            ends = f"{shown(span.start)} to {shown(span.end)}"
            raise InputValueError(f"span {ends} does not lie within {len(padded)} ids")
    for before, after in pairwise(ordered):
        if before.end > after.start:
            raise InputValueError(
                f"spans {before.start} to {before.end} and {after.start} to {after.end} overlap"
            )
    for start, end, item in ordered:
        padded[start:end] = _cycle(_pads(item, recipe, version), end - start)
    return padded


def _ids(input_ids: Any) -> list[int]:
    found = checks.tokens("input_ids", input_ids)
    if isinstance(found, list):
        return found
    if found.ndim != 1:
        raise InputTypeError("input_ids must be a row of ints")
    return found.tolist()  # type: ignore[no-any-return]


def _span(span: Any) -> _FilledSpan:
    if isinstance(span, engine.Span):
        span = (span.start, span.end, int(span.hash64(), 16))
    parts = checks.listed("a span", span)
    if len(parts) != 3:
        raise InputTypeError("a span is (start, end, hash)")
    start, end = (check_int("an end of a span", number) for number in parts[:2])
    return _FilledSpan(start, end, parts[2])


def _pads(item: Hash, recipe: Recipe, version: str) -> list[int]:
    if isinstance(item, bytes):
        item = check_bytes("an identity", item)
        require(recipe.pads == "wide", "32-byte identities", "0.5.23", version)
        if len(item) != IDENTITY_SIZE:
            raise InputValueError(f"an identity must be {IDENTITY_SIZE} bytes, not {len(item)}")
        return _wide_pads(item)
    if isinstance(item, Digest):
        number = item.u64
    elif isinstance(item, Integral) and not isinstance(item, bool):
        number = int(item)
    else:
        hint = "parse_mm_hash() reads hex" if isinstance(item, str) else "mmhash.key() makes a key"
        kind = type(item).__name__
        raise InputTypeError(f"a hash must be an int, 32 bytes or a key, not {kind}: {hint}")
    if number < 0:
        raise InputValueError("a hash must not be negative")
    match recipe.pads:
        case "modulo":
            return [number % 2**30]
        case "shifted":
            return [_BASE + number % 2**30]
        case "wide":  # the engine keeps the low 64 bits of a longer hash
            return _wide_pads((number & _MASK_64).to_bytes(8, "big"))


def _wide_pads(identity: bytes) -> list[int]:
    digest = hashlib.sha256(b"sglang-mm-wide-pad-v1" + identity).digest()
    quarters = (int.from_bytes(digest[start : start + 8], "big") for start in range(0, 32, 8))
    return [_BASE + (quarter & _MASK_62) for quarter in quarters]


def _cycle(values: list[int], length: int) -> list[int]:
    repeats, rest = divmod(length, len(values))
    return values * repeats + values[:rest]
