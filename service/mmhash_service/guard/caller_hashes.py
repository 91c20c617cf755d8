"""Finds and removes callers' hashes and peers, wherever an engine reads them in JSON.

The engine parses the body again, perhaps with another parser. So the guard cuts nothing from the
text: it encodes what it has parsed, and forwards that. It refuses a body that two parsers might
read differently. Fractions keep their spelling. If nothing is removed, the body stays unchanged.
"""

import json
import re
import time
from collections.abc import Callable, Container, Iterable
from typing import Any

from msgspec import Raw
from msgspec.json import Decoder, Encoder

from mmhash.engines.caller_fields import FEATURE_FORMATS, KINDS, MEDIA
from mmhash.requests import PATHS, ShortText
from mmhash.requests.raw_json import PARSE_ERRORS, may_repeat_members
from mmhash.tags import TAGS_MEMBER
from mmhash_service.limits.text import MAX_DEPTH, has_many_values
from mmhash_service.problems.problem import Problem

MAX_TAGS = 1000

_LOOKED_AT = frozenset(KINDS)
_CONTAINERS = frozenset({dict, list})

# Where an array or object begins, in any encoding that a parser may guess.
_CONTAINER = re.compile(rb"[ \t\r\n\0\xef\xbb\xbf\xfe\xff]*[\[{]")

_CHARSET = re.compile(r";\s*charset\s*=\s*(\"?)(utf-?8|us-ascii)\1\s*(;|$)")


def _any_of(names: Iterable[str]) -> re.Pattern[bytes]:
    """Return an expression for any of these names in quotes."""
    return re.compile(rb'"(?:%b)"' % "|".join(names).encode())


# The underscore and the small letters, escaped: \u005f to \u007a. This expression and one for names
# both begin with a constant, so Python finds either much faster than one expression for both.
_ESCAPED = re.compile(rb"\\u00[5-7]")

# A body without any of these names has nothing to remove.
_NAMES = _any_of([TAGS_MEMBER, *KINDS])
_PEER_NAMES = sorted(name for name, kind in KINDS.items() if kind in {"peer", "peers"})
_PEERS = _any_of(_PEER_NAMES)

# The number of bytes to search at a time, and the longest name, quoted and with all its letters
# escaped.
_STEP = 64 << 10
_LONGEST = 6 * max(map(len, KINDS)) + len('""')


def _may_have(body: bytes, names: re.Pattern[bytes]) -> bool:
    """Return True if one of the names may be in the body, perhaps with escapes."""
    for start in range(0, len(body), _STEP):
        if start and start % (16 * _STEP) == 0:
            time.sleep(0)  # let the event loop have the GIL at once
        end = start + _STEP + _LONGEST
        # An image's base64 has no quotes. Finding none is much faster than searching for names.
        if body.find(b'"', start, end) >= 0 and (
            names.search(body, start, end) or _ESCAPED.search(body, start, end)
        ):
            return True
    return False


def _keep_spelling(number: str) -> Raw:
    # A Python function, not the class: the event loop can get the GIL whenever it is called.
    return Raw(number)


_DECODER = Decoder(float_hook=_keep_spelling)
_ENCODER = Encoder()


def strip_unverified_hashes(
    body: bytes,
    hashes_of_tags: Callable[[list[Any]], Container[str]],
    *,
    allow_peers: bool = False,
    path: str | None = None,
) -> bytes | None:
    """Return the body to forward, or None to forward it unchanged.

    `hashes_of_tags` returns the hashes that the request's valid tags allow.

    In requests for Messages, the input of a tool call stays as it is: engines turn it into text
    and look for nothing in it.
    """
    if _CONTAINER.match(body) is None:
        return None
    if json.detect_encoding(body) != "utf-8":  # Python's parser accepts UTF-16 and UTF-32 too
        raise Problem("invalid-json")
    # The base64 of an image cannot hide the name or value of a member.
    short = ShortText(body)
    if not _may_have(short.text, _NAMES):  # much faster than parsing, and true of most requests
        return None
    if has_many_values(short.text):
        raise Problem("body-too-large")
    try:
        request = _DECODER.decode(short.text)
        tags = _pop_tags(request)
        has_changed = _remove(
            request,
            hashes_of_tags(tags or []),
            allow_peers=allow_peers,
            is_messages=PATHS.get(path or "") == "messages",
        )
    except PARSE_ERRORS:
        raise Problem("invalid-json") from None

    encoded = _ENCODER.encode(request)
    # The engine may read the other one of two members with the same name.
    if has_changed or tags is not None or may_repeat_members(short.text, encoded):
        return short.restore(encoded)
    return None


def _pop_tags(request: Any) -> list[Any] | None:
    """Remove the tags from a request. Return them, or None if the request has no such member."""
    if type(request) is not dict or TAGS_MEMBER not in request:
        return None
    tags = request.pop(TAGS_MEMBER)
    if type(tags) is not list:
        return []
    if len(tags) > MAX_TAGS:
        raise Problem("body-too-large")
    return tags


def check_form(body: bytes, content_type: str) -> None:
    """Refuse a form whose members may hold JSON text that names a peer.

    The guard does not rewrite forms: it would have to split them exactly as the engine's parser
    does.
    """
    content_type = content_type.lower().lstrip()
    if not content_type.startswith("multipart/form-data"):
        return
    # With two charsets, or a charset spelled as in RFC 2231, an engine may use another one.
    charsets = content_type.count("charset")
    if charsets > 1 or (charsets == 1 and _CHARSET.search(content_type) is None):
        raise Problem("unsupported-encoding")
    if _may_have(body, _PEERS):
        names = [name for name in _PEER_NAMES if f'"{name}"'.encode() in body]
        named = " and ".join(names) or "an escaped name"
        reason = f"the form has {named}: leave it out, or send JSON as application/json"
        raise Problem("named-peer", reason=reason)


def _remove(request: Any, allowed: Container[str], *, allow_peers: bool, is_messages: bool) -> bool:
    """Delete the members that must not be forwarded. Return True if there were any."""
    has_changed = False
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
                    if not _may_pass(name, value, allowed, in_features, allow_peers):
                        # If one of several hashes is bad, remove all: otherwise the rest would move
                        # to other items.
                        del value[name]
                        has_changed = True
            is_call = is_messages and value.get("type") == "tool_use"
            for name, one in value.items():
                if type(one) in _CONTAINERS and not (is_call and name == "input"):
                    inner.append((one, in_media or name in MEDIA))
        level = inner
    return has_changed


def _may_pass(
    name: str,
    container: dict[str, Any],
    allowed: Container[str],
    in_features: bool,
    allow_peers: bool,
) -> bool:
    """Return True if this member of an object may reach the engine."""
    value = container[name]
    kind = KINDS[name]
    if value is None:
        return True
    if kind in {"peer", "peers"}:
        # A tool's schema may have a parameter of this name, described by an object.
        return allow_peers or (kind == "peer" and type(value) is dict)
    if kind == "feature":
        return not in_features or (name == "hash" and _is_allowed_number(value, allowed))
    if kind == "encoder":
        return "mm_items" not in container or _are_allowed(value, allowed)
    if kind == "hashes":
        return _are_allowed(value, allowed)
    if type(value) is dict:
        return _is_schema(container)
    return type(value) is str and value in allowed


def _are_allowed(value: Any, allowed: Container[str]) -> bool:
    if type(value) is dict:
        return all(_are_allowed(one, allowed) for one in value.values())
    if type(value) is list:
        return all(_are_allowed(one, allowed) for one in value)
    return value is None or (type(value) is str and value in allowed)


def _is_allowed_number(value: Any, allowed: Container[str]) -> bool:
    """Return True if the value is a number and an allowed 64-bit hash.

    Text does not count: an engine reads its digits as decimal, not as hex.
    """
    return type(value) is int and 0 <= value < 1 << 64 and f"{value:016x}" in allowed


def _is_schema(container: dict[str, Any]) -> bool:
    """Return True if the object maps names to schemas, like the parameters of a tool."""
    return all(
        type(one) is bool
        or (type(one) is dict and not any(type(one.get(name)) is str for name in _MEDIA_TEXTS))
        for one in container.values()
    )


_MEDIA_TEXTS = ("url", "data")


def _has_features(value: dict[str, Any]) -> bool:
    format_ = value.get("format")
    return type(format_) is str and format_.lower() in FEATURE_FORMATS
