"""Shorten a request's text by setting aside the base64 of its media.

Nearly all bytes of a request with images are base64. Decoding the base64 once and replacing it with
a short word leaves little text for the parser, which would otherwise copy it at each level.
"""

import re
from functools import cached_property
from secrets import token_hex

from mmhash.requests.media_source import Base64Error, decode_base64

# Base64 follows these marks: in a data: URL, and in the string of a member such as `data` or
# `image_data`. Each mark is found by its beginning, because a regular expression searches slowly.
_MARKS = (
    (b";base64,", re.compile(b";base64,")),
    (b'data"', re.compile(rb'data"[ \t\r\n]*:[ \t\r\n]*(\[[ \t\r\n]*)?"')),
)

# Shorter base64 is left to the parser.
_MIN_LENGTH = 1024

# How many pieces of base64 may be set aside. The parser reads any further base64 as text.
_MAX_COUNT = 1024

# The digits of the number at the end of a word.
_DIGITS = 8

WORD_LENGTH = 32 + _DIGITS
"""The number of characters of a word."""

# Pieces of the same length are first compared by this many bytes at each end.
_END = 64


class ShortText:
    """A text, and a shorter copy with an unguessable word in place of each base64."""

    def __init__(self, whole: bytes) -> None:
        self.whole = whole
        self._texts: list[memoryview] = []
        self._contents: list[bytearray] = []
        self._known: dict[tuple[int, bytes, bytes], list[int]] = {}
        self.text = whole
        for beginning, mark in _MARKS:
            self.text = self._shorten(self.text, beginning, mark)
        self.has_words = bool(self._texts)
        """True if anything was set aside."""

    def _shorten(self, text: bytes, beginning: bytes, mark: re.Pattern[bytes]) -> bytes:
        pieces, start, end = [], 0, 0
        while len(self._texts) < _MAX_COUNT and (found := text.find(beginning, end)) >= 0:
            match = mark.match(text, found)
            if match is None:
                end = found + len(beginning)
                continue
            begin, end = match.end(), text.find(b'"', match.end())
            if end < 0:
                break
            # In JSON the base64 is inside a string. If only base64 follows up to the next quote,
            # the string ends there, and a word changes neither end of the string.
            if end - begin < _MIN_LENGTH:
                continue
            word = self._set_aside(memoryview(text)[begin:end])
            if word is not None:
                pieces += [text[start:begin], word]
                start = end
        return b"".join([*pieces, text[start:]]) if pieces else text

    def _set_aside(self, text: memoryview) -> bytes | None:
        """Return the word for a part of a text, or None if the part is not base64."""
        ends = (len(text), bytes(text[:_END]), bytes(text[-_END:]))
        same = self._known.setdefault(ends, [])
        number = next((one for one in same if self._texts[one] == text), None)
        if number is None:
            try:
                content = decode_base64(text)
            except Base64Error:
                return None
            number = len(self._texts)
            same.append(number)
            self._texts.append(text)
            self._contents.append(content)
        return self._word(number)

    @cached_property
    def _nonce(self) -> bytes:
        return token_hex(16).encode()

    def _word(self, number: int) -> bytes:
        return b"%b%0*d" % (self._nonce, _DIGITS, number)

    def content(self, text: str) -> bytearray | None:
        """Return the decoded content that a short text ends with, if it was set aside."""
        if not self._contents:
            return None
        word = text[-WORD_LENGTH:]
        if not word.startswith(self._nonce.decode()):
            return None
        return self._contents[int(word[-_DIGITS:])]

    def restore(self, text: bytes) -> bytes:
        """Return a text with all words replaced by the original base64."""
        if not self._texts or self._nonce not in text:
            return text
        first, *others = text.split(self._nonce)
        pieces: list[bytes | memoryview] = [first]
        for piece in others:
            pieces += [self._texts[int(piece[:_DIGITS])], piece[_DIGITS:]]
        return b"".join(pieces)
