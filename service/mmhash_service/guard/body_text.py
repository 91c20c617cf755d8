"""Long bodies as text: searched and shortened for the parser, holding the GIL only briefly.

Most of a body with images is base64, which names no member and need not be parsed.
"""

import re
import time
from collections.abc import Iterator
from functools import cache
from secrets import token_hex

# How many bytes are searched at a time, and after how many bytes other threads may get the GIL.
_STEP = 64 << 10
_TURN = 1 << 20

# An escape of a letter of a name, or of its underscore: \u005f to \u007a.
_ESCAPED_LETTER = re.compile(rb"\\u00[5-7]")

# The characters of base64, and a letter that no number contains: text with it is within a string.
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=-_"
_NO_NUMBER = re.compile(rb"[A-DF-Za-df-z]")

# The only number that the decoder would spell differently: the integer minus zero.
_MINUS_ZERO = re.compile(rb"-0(?=[ \t\r\n,\]}])(?<=[ \t\r\n,:\[]-0)")

# The longest rest of an escape after its backslash.
_ESCAPE_MAX = 8


def may_have(body: bytes, names: frozenset[bytes]) -> bool:
    """Return True if one of the names may be in the body, perhaps with escapes."""
    overlap = _overlap(names)
    for start in _steps(len(body)):
        end = start + _STEP + overlap
        first, last = body.find(b'"', start, end), body.rfind(b'"', start, end)
        if first < 0:  # within a data: URL: much faster
            continue
        # Searching between two quotes is faster than searching for each name. A data: URL at either
        # end of the step is skipped, so images cost little.
        if not names.isdisjoint(body[first + 1 : last].split(b'"')):
            return True
        # Finding the letter is much faster than finding the escape.
        if body.find(b"\\", start, end) >= 0 and _ESCAPED_LETTER.search(body, start, end):
            return True
    return False


@cache
def _overlap(names: frozenset[bytes]) -> int:
    """Return by how many bytes steps overlap, to keep each quoted name whole in one step."""
    return max(map(len, names)) + len('""')


def set_aside(body: bytes) -> tuple[bytes, dict[bytes, bytes]]:
    """Replace long base64 and each -0 by unguessable words; return text and words.

    Parser and encoder hold the GIL for as long as they read, and spell -0 as 0.
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
                # The first bytes may be the rest of an escape in the previous piece.
                words[word] = piece[_ESCAPE_MAX:]
                piece = piece[:_ESCAPE_MAX] + word
            pieces.append(piece)
        text = b"".join(pieces)
    if _MINUS_ZERO.search(text):
        word = b"-0e%d" % (int(token_hex(16), 16) + 10**39)  # a number, because it replaces one
        words[word] = b"-0"
        text = _MINUS_ZERO.sub(word, text)
    return text, words


def put_back(encoded: bytes, words: dict[bytes, bytes]) -> list[bytes]:
    """Return the text with the words replaced by their originals, in pieces."""
    if not words:
        return [encoded]
    shapes = {re.sub(rb"\d{8}$", rb"\\d{8}", word) if word[:1] == b"x" else word for word in words}
    pieces = re.split(b"(%b)" % b"|".join(shapes), encoded)
    return [words.get(piece, piece) for piece in pieces]


def _steps(length: int) -> Iterator[int]:
    """Yield the start of each step, and offer the GIL to the event loop after each MiB.

    Otherwise Python would make the event loop wait for its switch interval.
    """
    for start in range(0, length, _STEP):
        if start and start % _TURN == 0:
            time.sleep(0)
        yield start
