"""Callers' hashes in a request's JSON: found wherever an engine takes them, and taken out.

The engine parses the body once more, maybe with another parser. So what is taken out is not cut
from the text: what goes on is what was read here, written anew, and what two parsers might read in
two ways is refused. A body that has none of the names is not even parsed.
"""

import json
import re
import time
from collections.abc import Callable, Container, Iterator
from secrets import token_hex
from typing import Any

import numpy as np
from pydantic_core import from_json, to_json

TAGS = "mmhash_tags"
"""The member of a request in which the tags of its keys travel."""

MAX_TAGS = 1000

# Long strings cost next to nothing, numbers and names do: with so many the parser holds the GIL,
# and with it the event loop, for 5 ms.
MAX_VALUES = 150_000

# Members that hold one hash, and members that hold many, in lists, by modality, or both.
_ONE = frozenset({"uuid", "content_hash"})
_MANY = frozenset({"mm_hashes", "mm_content_hashes", "mm_hashes_by_modality", "multi_modal_uuids"})
_FIELDS = _ONE | _MANY

# That of the tags first: a request that a gateway has annotated has them.
_NAMES = [b'"%s"' % name.encode() for name in (TAGS, *sorted(_FIELDS))]
_LONGEST = max(map(len, _NAMES))

# An escape of a letter of such a name, or of its underscore: \u005f to \u007a.
_ESCAPE = b"\\u00"
_ESCAPED_LETTER = re.compile(rb"\\u00[5-7]")

# Where an array or object begins, in any encoding that a parser may guess.
_CONTAINER = re.compile(rb"[ \t\r\n\0\xef\xbb\xbf\xfe\xff]*[\[{]")

# How much is searched or written at a time, and after how much others may have the GIL.
_STEP = 64 << 10
_TURN = 1 << 20


class RefusedError(Exception):
    """A body that does not go on, by the name of its problem."""


def without_untagged(
    body: bytes, spell: Callable[[list[Any]], Container[str]], *, refuse: bool
) -> list[bytes] | None:
    """What goes on in the body's place, in pieces; None if it goes on as it is.

    `spell` gives, of the tags that came with the request, the hashes that the good ones vouch for.
    """
    if _CONTAINER.match(body) is None:
        return None
    if json.detect_encoding(body) != "utf-8":  # Python's parser takes UTF-16 and UTF-32 as well
        raise RefusedError("unreadable-json")
    if not _may_have_fields(body):
        return None
    if len(body) > MAX_VALUES and _count_values(body) > MAX_VALUES:
        raise RefusedError("body-too-large")
    try:
        request = from_json(body)
    except ValueError:
        raise RefusedError("unreadable-json") from None
    tags = request.pop(TAGS, None) if isinstance(request, dict) else None
    if not isinstance(tags, list):
        tags = []
    if len(tags) > MAX_TAGS:
        raise RefusedError("body-too-large")
    if _take_out(request, spell(tags)) and refuse:
        raise RefusedError("untagged-hash")
    return [to_json(request)] if len(body) <= _STEP else list(_write(request))


def _may_have_fields(body: bytes) -> bool:
    for at in _steps(len(body)):
        end = at + _STEP + _LONGEST
        if body.find(b'"', at, end) < 0:  # within a data: URL: an eighth of the time
            continue
        if any(body.find(name, at, end) >= 0 for name in _NAMES):
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


def _take_out(request: Any, vouched: Container[str]) -> bool:
    """Delete each hash that is not vouched for; whether there was one."""
    found = False
    waiting = [request]
    while waiting:
        value = waiting.pop()
        if type(value) is list:
            waiting += value
        elif type(value) is dict:
            if not _FIELDS.isdisjoint(value):
                for name in _FIELDS.intersection(value):
                    if not _is_vouched(name, value[name], vouched):
                        # Of many all: without one of them, the others would be for other items.
                        del value[name]
                        found = True
            waiting += value.values()
    return found


def _is_vouched(name: str, value: Any, vouched: Container[str]) -> bool:
    if name in _MANY and isinstance(value, dict):
        return all(_is_vouched(name, one, vouched) for one in value.values())
    if name in _MANY and isinstance(value, list):
        return all(_is_vouched(name, one, vouched) for one in value)
    # No engine takes an object as one hash; the schema of a tool has one under a name like uuid.
    is_none = value is None or isinstance(value, dict)
    return is_none or (isinstance(value, str) and value in vouched)


def _write(request: Any) -> Iterator[bytes]:
    """The JSON of a long request, in pieces.

    to_json() needs 24 ms for a string of 20 MiB, and holds the GIL. So strings beyond 64 KiB in all
    are written apart; until then, a word that nobody can guess has their place.
    """
    apart: list[str] = []
    word = token_hex(16)
    room = _STEP
    waiting = [request]
    while waiting:
        holder = waiting.pop()
        for at, value in holder.items() if type(holder) is dict else enumerate(holder):
            if type(value) is not str:
                if type(value) in {dict, list}:
                    waiting.append(value)
            elif len(value) <= room:
                room -= len(value)
            else:
                holder[at] = f"{word}{len(apart)}"
                apart.append(value)
    text, *rest = re.split(rb'"%s(\d+)"' % word.encode(), to_json(request))
    yield text
    for number, text in zip(rest[::2], rest[1::2], strict=True):
        string = apart[int(number)]
        yield b'"'
        for at in _steps(len(string)):
            yield to_json(string[at : at + _STEP])[1:-1]
        yield b'"' + text
