"""Items of responses, validated against those that were sent."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Literal, NamedTuple, Self, get_args

from mmhash.client.responses import malformed, member, shown
from mmhash.digest import DIGEST_SIZE, Algorithm, Digest
from mmhash.view import Kind

ItemKind = Kind | Literal["video", "audio"]
"""The kind of an item; a clip by its source is a video or audio."""
_KINDS = frozenset({*get_args(Kind), "video", "audio"})
_HEX = re.compile("[0-9a-f]+")
_MAX_DIMENSIONS = 64
_MAX_NUMBER = 1 << 63
_CACHE_STATUS: dict[str | None, Literal["hit", "miss"]] = {"hit": "hit", "miss": "miss"}


class ExpectedItem(NamedTuple):
    """The fields that an item of a response must have; None for those not known in advance."""

    algorithm: Algorithm
    engines: frozenset[str]
    kind: ItemKind | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    nbytes: int | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One item: kind, dtype, shape, the digest of its `nbytes` bytes, its key, engines' fields.

    `memo` is the status of the service's cache, `tag` its signature; both may be None. The fields
    of engines that apply EXIF orientation cover that of an image by its pixels; the key does not.
    `frames` are the keys of the frames or windows of a clip that was decoded.
    """

    name: str | None
    kind: ItemKind
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    digest: Digest
    key: Digest
    engines: Mapping[str, Mapping[str, Any]]
    memo: Literal["hit", "miss"] | None
    tag: str | None
    exif_orientation: int = 1
    frames: tuple[Digest, ...] = ()

    @classmethod
    def parse(cls, payload: Any, expected: ExpectedItem) -> Self:
        """Parse an item of a response; raise unless it matches the expected one."""
        if not isinstance(payload, dict):
            malformed("an item is not an object")
        _check_text(payload, "kind", expected.kind, _KINDS)
        _check_text(payload, "dtype", expected.dtype)
        _check_text(payload, "algorithm", expected.algorithm)
        return cls(
            _optional_text(payload, "name"),
            payload["kind"],
            payload["dtype"],
            _shape(payload, expected),
            _nbytes(payload, expected),
            _digest(expected.algorithm, "digest", payload.get("digest")),
            _digest("blake3", "key", payload.get("key")),
            _engines(payload, expected),
            _cache_status(payload),
            _optional_text(payload, "tag"),
            _orientation(payload),
            _frames(payload),
        )

    def _repr_html_(self) -> str:
        """Return the item as a table for notebooks; names of the caller are escaped."""
        rows: dict[str, Any] = {
            "name": self.name,
            "kind": f"{self.kind} {self.dtype} {list(self.shape)}" if self.dtype else self.kind,
            "size": f"{self.nbytes:,} bytes",
            "digest": self.digest,
            "key": f"{self.key:x}",
            **{name: json.dumps(dict(fields)) for name, fields in self.engines.items()},
            "memo": self.memo,
        }
        cells = (
            f"<tr><th>{escape(name)}</th><td><code>{escape(str(value))}</code></td></tr>"
            for name, value in rows.items()
            if value is not None
        )
        return f"<table>{''.join(cells)}</table>"


def parse_items(payload: Any, expected: list[ExpectedItem]) -> list[Item]:
    """Parse the items of a response to `POST /hash`, one for each expected item."""
    items = member(payload, "items", list)
    if len(items) != len(expected):
        malformed(f"it has {len(items)} items, not {len(expected)}")
    return [Item.parse(*pair) for pair in zip(items, expected, strict=True)]


def _check_text(
    payload: Mapping[str, Any],
    name: str,
    expected: str | None,
    known: frozenset[str] | None = None,
) -> None:
    value = member(payload, name, str)
    if expected not in {None, value} or (known is not None and value not in known):
        valid = "a known one" if expected is None else repr(expected)
        malformed(f"an item has the {name} {shown(value)}, not {valid}")


def _optional_text(payload: Mapping[str, Any], name: str) -> str | None:
    value = payload.get(name)
    if not (value is None or isinstance(value, str)):
        malformed(f"its {name!r} is not a string")
    return value


def _shape(payload: Mapping[str, Any], expected: ExpectedItem) -> tuple[int, ...]:
    shape = member(payload, "shape", list)
    if len(shape) > _MAX_DIMENSIONS or not all(map(_is_natural, shape)):
        malformed(f"an item has the shape {shown(shape)}")
    if expected.shape not in {None, tuple(shape)}:
        malformed(f"an item has the shape {shown(shape)}, not {list(expected.shape or ())}")
    return tuple(shape)


def _nbytes(payload: Mapping[str, Any], expected: ExpectedItem) -> int:
    nbytes: int = member(payload, "nbytes", int)
    if not _is_natural(nbytes):
        malformed(f"an item has {shown(nbytes)} bytes")
    if expected.nbytes not in {None, nbytes}:
        malformed(f"an item has {nbytes} bytes, not {expected.nbytes}")
    return nbytes


def _engines(payload: Mapping[str, Any], expected: ExpectedItem) -> Mapping[str, Mapping[str, Any]]:
    engines = payload.get("engines", {})
    if not isinstance(engines, dict) or not engines.keys() <= expected.engines:
        names = ", ".join(sorted(expected.engines)) or "none"
        malformed(f"an item's 'engines' are not those requested: {names}")
    if not all(isinstance(request_fields, dict) for request_fields in engines.values()):
        malformed("an engine's request fields are not an object")
    return engines


def _cache_status(payload: Mapping[str, Any]) -> Literal["hit", "miss"] | None:
    memo = _optional_text(payload, "memo")
    if memo is not None and memo not in _CACHE_STATUS:
        malformed(f"an item has the memo {shown(memo)}")
    return _CACHE_STATUS.get(memo)


def _orientation(payload: Mapping[str, Any]) -> int:
    orientation = payload.get("exif_orientation", 1)
    if type(orientation) is not int or not 1 <= orientation <= 8:
        malformed(f"an item has the EXIF orientation {shown(orientation)}")
    return orientation


def _frames(payload: Mapping[str, Any]) -> tuple[Digest, ...]:
    frames = member(payload, "frames", list) if payload.get("frames") is not None else []
    return tuple(_digest("blake3", "frame", frame) for frame in frames)


def _is_natural(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MAX_NUMBER


def _digest(algorithm: Algorithm, name: str, text: Any) -> Digest:
    size = 2 * DIGEST_SIZE[algorithm]
    if not (isinstance(text, str) and len(text) == size and _HEX.fullmatch(text)):
        malformed(f"an item has the {name} {shown(text)}, not {size} hex digits")
    return Digest(algorithm, bytes.fromhex(text))
