"""Shorten a request's text by setting aside the base64 of its data: URLs.

Nearly all bytes of a request with images are base64. Decoding the base64 once and replacing it with
a short word leaves little text for the parser, which would otherwise copy it at each level.
"""

from secrets import token_hex

from mmhash.requests.media_text import Base64Error, decode_base64

_MARK = b";base64,"

# Shorter base64 is left to the parser.
_MIN_LENGTH = 1024

# At most this many are set aside. Any further base64 is parsed as text.
_MAX_COUNT = 1024

# The digits of the number at the end of a word.
_DIGITS = 8

# Contents of one length are first compared by this many bytes at both ends.
_END = 64


class ShortText:
    """A text, and a shorter copy with an unguessable word in place of each base64."""

    def __init__(self, whole: bytes) -> None:
        self.whole = whole
        self._nonce = token_hex(16).encode()
        self._texts: list[memoryview] = []
        self._contents: list[bytearray] = []
        self._known: dict[tuple[int, bytes, bytes], list[int]] = {}
        self.text = self._shorten()

    def _shorten(self) -> bytes:
        whole, pieces, start, end = self.whole, [], 0, 0
        while len(self._texts) < _MAX_COUNT and (found := whole.find(_MARK, end)) >= 0:
            begin = found + len(_MARK)
            end = whole.find(b'"', begin)
            if end < 0:
                break
            # In JSON the mark is inside a string. If only base64 follows up to the next quote, the
            # string ends there, and a word changes neither end of the string.
            if end - begin >= _MIN_LENGTH and (word := self._set_aside(begin, end)) is not None:
                pieces += [whole[start:begin], word]
                start = end
        return b"".join([*pieces, whole[start:]]) if pieces else whole

    def _set_aside(self, begin: int, end: int) -> bytes | None:
        """Return the word for a part of the text, or None if the part is not base64."""
        text = memoryview(self.whole)[begin:end]
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

    def _word(self, number: int) -> bytes:
        return b"%b%0*d" % (self._nonce, _DIGITS, number)

    @property
    def has_words(self) -> bool:
        """True if anything was set aside."""
        return bool(self._texts)

    def content(self, text: str) -> bytearray | None:
        """Return the decoded content that a short text ends with, if it was set aside."""
        word = text[-len(self._nonce) - _DIGITS :]
        if not self._contents or not word.startswith(self._nonce.decode()):
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
