"""Callers' hashes and peers in a request's JSON: found wherever an engine reads them, and removed.

The engine parses the body again, perhaps with another parser. So nothing is cut from the text: the
body that goes on is what was read here, written anew, and a body that two parsers might read in two
ways is refused. Numbers keep their spelling. A body from which nothing goes stays as it is.
"""

import json
import re
import time
from collections.abc import Callable, Container, Iterator
from secrets import token_hex
from typing import Any

import numpy as np
from msgspec import MsgspecError, Raw
from msgspec.json import Decoder, Encoder

from mmhash_service.bodies.json_limits import MAX_DEPTH, MAX_VALUES
from mmhash_service.request_fields import FEATURE_FORMATS, KINDS, MEDIA

TAGS = "mmhash_tags"
"""The member of a request in which the tags of its keys travel."""

MAX_TAGS = 1000

# That of the tags first: a request that a gateway has annotated has them.
_NAMES = [b'"%s"' % name.encode() for name in (TAGS, *KINDS)]
_LONGEST = max(map(len, _NAMES))
_PEERS = [b'"%s"' % name.encode() for name, kind in KINDS.items() if kind in {"peer", "peers"}]
_LOOKED_AT = frozenset(KINDS)

# An escape of a letter of such a name, or of its underscore: \u005f to \u007a.
_ESCAPE = b"\\u00"
_ESCAPED_LETTER = re.compile(rb"\\u00[5-7]")

# Where an array or object begins, in any encoding that a parser may guess.
_CONTAINER = re.compile(rb"[ \t\r\n\0\xef\xbb\xbf\xfe\xff]*[\[{]")

# How much is searched at a time, and after how much others may have the GIL.
_STEP = 64 << 10
_TURN = 1 << 20

# A shorter body is parsed at once: that is faster than the search for 30 names.
_SMALL = 32 << 10

# A stretch of base64, and a letter in it that no number has: so the stretch is within a string.
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-_"
_NO_NUMBER = re.compile(rb"[A-DF-Za-df-z]")

# The one number that the decoder would spell in another way: an integer of minus nought.
_MINUS_NOUGHT = re.compile(rb"-0(?=[ \t\r\n,\]}])(?<=[ \t\r\n,:\[]-0)")

# The longest rest of an escape after its backslash.
_ESCAPE_MAX = 8

_CHARSET = re.compile(r"charset\s*=\s*\"?(?P<name>[^\s\";]*)", re.IGNORECASE)


def _keep_spelling(number: str) -> Raw:
    # A function of Python, not the class itself: between calls the event loop may have the GIL.
    return Raw(number)


_DECODER = Decoder(float_hook=_keep_spelling)
_ENCODER = Encoder()


class RefusedError(Exception):
    """A body that does not go on, by the name of its problem."""


def strip_unverified_hashes(
    body: bytes,
    request_fields: Callable[[list[Any]], Container[str]],
    *,
    refuse: bool,
    allow_peers: bool = False,
) -> list[bytes] | None:
    """Return what goes on in the body's place, in pieces; None if it goes on as it is.

    `spell` gives, of the tags that came with the request, the hashes that the good ones vouch for.
    """
    if _CONTAINER.match(body) is None:
        return None
    if json.detect_encoding(body) != "utf-8":  # Python's parser takes UTF-16 and UTF-32 as well
        raise RefusedError("unreadable-json")
    is_small = len(body) <= _SMALL
    if not is_small and not _may_have(body, _NAMES):
        return None
    if len(body) > MAX_VALUES and _count_values(body) > MAX_VALUES:
        raise RefusedError("body-too-large")
    try:
        text, words = _set_aside(body)
        request = _DECODER.decode(text)
        has_tags = type(request) is dict and TAGS in request
        tags = request.pop(TAGS) if has_tags else []
        if type(tags) is not list:
            tags = []
        if len(tags) > MAX_TAGS:
            raise RefusedError("body-too-large")
        removed = _remove(request, request_fields(tags), allow_peers=allow_peers)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        if is_small and not _may_have(body, _NAMES):
            return None  # the engine refuses it as well
        raise RefusedError("unreadable-json") from None
    if removed and refuse:
        raise RefusedError(min(removed))
    written = _ENCODER.encode(request)
    if not removed and not has_tags:
        if not _has_twins(text, written):
            return None
        if is_small and not _may_have(body, _NAMES):
            return None  # its twins are no names of ours
    return _put_back(written, words)


def check_form(body: bytes, content_type: str) -> None:
    """Refuse a form that may name a peer in a JSON text, such as vLLM's `vllm_xargs`.

    A form is never rewritten: its parts would have to be found as the engine's parser finds them.
    """
    if not content_type.lower().lstrip().startswith("multipart/form-data"):
        return
    charset = _CHARSET.search(content_type)
    if charset is not None and charset["name"].lower() not in {"utf-8", "utf8", "us-ascii"}:
        raise RefusedError("unsupported-encoding")
    if _may_have(body, _PEERS):
        raise RefusedError("named-peer")


def _set_aside(body: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """Put words that nobody can guess in the place of long base64 and of each -0.

    The parser and the writer hold the GIL for 1 ms a MiB, and spell -0 as 0.
    """
    words: dict[bytes, bytes] = {}
    text = body
    if len(body) > _STEP:
        nonce = token_hex(16).encode()
        pieces = []
        for start in _steps(len(body)):
            piece = body[start : start + _STEP]
            if (
                b'"' not in piece
                and _NO_NUMBER.search(piece)
                and not piece.translate(None, _BASE64)
            ):
                word = b"x%b%08d" % (nonce, len(words))
                # The first bytes may belong to an escape that the last piece began.
                words[word] = piece[_ESCAPE_MAX:]
                piece = piece[:_ESCAPE_MAX] + word
            pieces.append(piece)
        text = b"".join(pieces)
    if _MINUS_NOUGHT.search(text):
        word = b"-0e%d" % (int(token_hex(16), 16) + 10**39)  # a number, as it stands for one
        words[word] = b"-0"
        text = _MINUS_NOUGHT.sub(word, text)
    return text, words


def _put_back(written: bytes, words: dict[bytes, bytes]) -> list[bytes]:
    """The text with what was set aside, in pieces."""
    if not words:
        return [written]
    shapes = {re.sub(rb"\d{8}$", rb"\\d{8}", word) if word[:1] == b"x" else word for word in words}
    pieces = re.split(b"(%b)" % b"|".join(shapes), written)
    return [words.get(piece, piece) for piece in pieces]


def _has_twins(text: bytes, written: bytes) -> bool:
    """Whether an object of the text may have two members of one name.

    Only the last of them is written, so quotes are missing. An escaped quote counts in both texts,
    if it is not spelled by its number.
    """
    return written.count(b'"') != text.count(b'"') or b"\\u0022" in text


def _may_have(body: bytes, names: list[bytes]) -> bool:
    for at in _steps(len(body)):
        end = at + _STEP + _LONGEST
        if body.find(b'"', at, end) < 0:  # within a data: URL: an eighth of the time
            continue
        if any(body.find(name, at, end) >= 0 for name in names):
            return True
        if body.find(_ESCAPE, at, end) >= 0 and _ESCAPED_LETTER.search(body, at, end):
            return True
    return False


def _count_values(body: bytes) -> int:
    """By their signs, a MiB at a time: numpy gives the GIL away, and takes a tenth of count()."""
    signs = np.frombuffer(body, np.uint8)
    return sum(
        int(np.count_nonzero(signs[at : at + _TURN] == sign))
        for at in range(0, len(body), _TURN)
        for sign in b",:["
    )


def _steps(length: int) -> Iterator[int]:
    """Where each step begins; after a MiB of them the event loop gets the GIL if it waits for it.

    Left to itself, Python would let it wait 5 ms.
    """
    for at in range(0, length, _STEP):
        if at and at % _TURN == 0:
            time.sleep(0)
        yield at


def _remove(request: Any, vouched: Container[str], *, allow_peers: bool) -> set[str]:
    """Delete what may not go on; the problems that it is."""
    problems: set[str] = set()
    level = [(request, False)]  # each value, and whether it is within media objects
    depth = 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise RecursionError
        inner: list[tuple[Any, bool]] = []
        for value, in_media in level:
            if type(value) is list:
                inner.extend((one, in_media) for one in value if type(one) in _CONTAINERS)
                continue
            if not _LOOKED_AT.isdisjoint(value):
                in_features = in_media or _has_features(value)
                for name in _LOOKED_AT.intersection(value):
                    problem = _problem(name, value, vouched, in_features, allow_peers)
                    if problem is not None:
                        # Of many hashes all: without one, the others would be for other items.
                        del value[name]
                        problems.add(problem)
            for name, one in value.items():
                if type(one) in _CONTAINERS:
                    inner.append((one, in_media or name in MEDIA))
        level = inner
    return problems


_CONTAINERS = frozenset({dict, list})


def _problem(
    name: str, holder: dict[str, Any], vouched: Container[str], in_features: bool, allow_peers: bool
) -> str | None:
    """What is wrong with this member of an object that an engine reads."""
    value = holder[name]
    kind = KINDS[name]
    if value is None:
        return None
    if kind in {"peer", "peers"}:
        # The schema of a tool has an object under the name of a parameter.
        is_schema = kind == "peer" and type(value) is dict
        return None if allow_peers or is_schema else "named-peer"
    if kind == "feature":
        is_good = not in_features or (name == "hash" and _is_vouched_number(value, vouched))
    elif kind == "encoder":
        is_good = "mm_items" not in holder or _are_vouched(value, vouched)
    elif kind == "hashes":
        is_good = _are_vouched(value, vouched)
    elif type(value) is dict:
        is_good = _is_schema(holder)
    else:
        is_good = type(value) is str and value in vouched
    return None if is_good else "untagged-hash"


def _are_vouched(value: Any, vouched: Container[str]) -> bool:
    if type(value) is dict:
        return all(_are_vouched(one, vouched) for one in value.values())
    if type(value) is list:
        return all(_are_vouched(one, vouched) for one in value)
    return value is None or (type(value) is str and value in vouched)


def _is_vouched_number(value: Any, vouched: Container[str]) -> bool:
    """Whether the number is a vouched 64-bit hash; SGLang reads a text as decimal, not as hex."""
    return type(value) is int and 0 <= value < 1 << 64 and f"{value:016x}" in vouched


def _is_schema(holder: dict[str, Any]) -> bool:
    """Whether the object maps names to schemas, as a tool's parameters do, unlike a media part."""
    return all(
        type(one) is bool
        or (type(one) is dict and not any(type(one.get(name)) is str for name in _MEDIA_TEXTS))
        for one in holder.values()
    )


_MEDIA_TEXTS = ("url", "data")


def _has_features(value: dict[str, Any]) -> bool:
    format_ = value.get("format")
    return type(format_) is str and format_.lower() in FEATURE_FORMATS
