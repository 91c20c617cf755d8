"""A request as the client sent it, parsed once for all engines, without the base64 of its media."""

import re
from functools import cached_property
from secrets import token_hex
from typing import Any, Literal

from mmhash.json_pointer import Path
from mmhash.requests import raw_json
from mmhash.requests.media_source import (
    Base64Error,
    MediaSource,
    Modality,
    decode_base64,
    is_data_url,
)

Form = Literal["chat", "completions", "generate", "messages", "responses"]
"""The form of a request, determined by its path (forms.py)."""

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

# The number of characters of a word.
_WORD_LENGTH = 32 + _DIGITS

# Pieces of the same length are first compared by this many bytes at each end.
_END = 64


class ShortText:
    """A text, and a shorter copy with an unguessable word in place of each base64.

    Nearly all bytes of a request with images are base64. Decoding the base64 once and replacing it
    with a short word leaves little text for the parser, which would otherwise copy it at each
    level.
    """

    def __init__(self, whole: bytes) -> None:
        self.whole = whole
        self._texts: list[memoryview] = []
        self._contents: list[bytearray] = []
        self._known: dict[tuple[int, bytes, bytes], list[int]] = {}
        self.words = 0
        """The number of words in the text."""
        self.text = whole
        for beginning, mark in _MARKS:
            self.text = self._shorten(self.text, beginning, mark)

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
                self.words += 1
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
        word = text[-_WORD_LENGTH:]
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


class Document:
    """An immutable request."""

    def __init__(self, text: bytes | ShortText, form: Form | None = None) -> None:
        """Parse a request. Without a form, guess the form from the members."""
        self._short = text if isinstance(text, ShortText) else ShortText(text)
        self.members = raw_json.parse(self._short.text)
        """The members, with placeholder words for the parts set aside (see `whole`)."""
        self.form = form or _form_of_members(self.members)
        self._sources: dict[tuple[Modality, bool, str], MediaSource] = {}

    @property
    def text(self) -> bytes:
        """The request, byte for byte."""
        return self._short.whole

    @property
    def text_size(self) -> int:
        """The size of the request in bytes, without the media found so far."""
        return len(self._short.text) - sum(len(source.text) for source in self._sources.values())

    @property
    def model(self) -> str:
        """The name of the model, or an empty text."""
        name = self.members.get("model")
        return name if isinstance(name, str) else ""

    @property
    def words(self) -> int:
        """The number of placeholder words in the members."""
        return self._short.words

    def source(
        self, modality: Modality, text: str, path: Path = (), *, is_url: bool = True
    ) -> MediaSource:
        """Return the media to which a text in the members refers.

        `path` is the text's place, if known.
        """
        name = (modality, is_url, text)
        if name not in self._sources:
            is_inline = is_data_url(text) if is_url else len(text) == _WORD_LENGTH
            content = self._short.content(text) if is_inline else None
            kept = self.whole(text) if content is None else text
            self._sources[name] = MediaSource(
                modality,
                kept,
                is_url=is_url,
                content=content,
                path=path,
            )
        return self._sources[name]

    def whole(self, value: Any) -> Any:
        """Return a value from the members with its original text."""
        if not self._short.words:
            return value
        if isinstance(value, str):
            return (
                self._short.restore(value.encode()).decode()
                if len(value) >= _WORD_LENGTH
                else value
            )
        if isinstance(value, list):
            return [self.whole(one) for one in value]
        if isinstance(value, dict):
            return {self.whole(name): self.whole(one) for name, one in value.items()}
        return value

    def spelled(self, name: str) -> bytes:
        """Return the raw JSON of a member."""
        return self._short.restore(bytes(self._raw[name]))

    @cached_property
    def _raw(self) -> dict[str, Any]:
        return self.open()

    def open(self) -> dict[str, Any]:
        """Return the members as raw JSON, to change and write."""
        return raw_json.open_object(self._short.text)

    def write(self, members: dict[str, Any]) -> bytes:
        """Write raw members, some of them changed, as JSON."""
        return self._short.restore(raw_json.encode(members))


def _form_of_members(members: dict[str, Any]) -> Form:
    if "messages" in members:
        return "chat"
    is_native = not members.keys().isdisjoint(("text", "input_ids", "input_embeds"))
    if is_native:
        return "generate"
    if "prompt" in members:
        return "completions"
    return "responses" if "input" in members else "generate"
