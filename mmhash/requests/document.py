"""A request as it came, each level of it opened once, whatever engines read it."""

from typing import Any, Literal

import msgspec

from mmhash.requests import raw_json
from mmhash.requests.media_source import MediaSource, Modality
from mmhash.requests.media_text import is_data_url
from mmhash.requests.raw_json import Object, RequestError
from mmhash.requests.short_text import ShortText

Form = Literal["chat", "completions", "generate"]
"""The form of a request: its path says which one it is (forms.py)."""


class Document:
    """A request that is opened where it is read, and never changed."""

    def __init__(self, text: bytes | ShortText, form: Form | None = None) -> None:
        """Open a request; without a form, it has the one that its members show (forms.py)."""
        self._short = text if isinstance(text, ShortText) else ShortText(text)
        self.body = raw_json.open_body(self._short.text)
        self.form = form or _form_of_members(self.body)
        # By the identity of a raw value, which is kept with what it holds.
        self._opened: dict[int, tuple[Any, Object | list[Any] | None]] = {}
        self._sources: dict[tuple[Modality, bool, str], MediaSource] = {}

    @property
    def text(self) -> bytes:
        """The request, byte for byte."""
        return self._short.whole

    @property
    def text_size(self) -> int:
        """The bytes of the request without those of its media, as far as engines have read them."""
        return len(self._short.text) - sum(len(source.text) for source in self._sources.values())

    def open_object(self, raw: Any, *place: str | int) -> Object | None:
        """Return a copy of the object that a raw value is, or None; `place` is named in errors."""
        opened = self._open(raw, place)
        return dict(opened) if isinstance(opened, dict) else None

    def open_list(self, raw: Any, *place: str | int) -> list[Any] | None:
        """Return a copy of the list that a raw value is, or None."""
        opened = self._open(raw, place)
        return [*opened] if isinstance(opened, list) else None

    def _open(self, raw: Any, place: tuple[str | int, ...]) -> Object | list[Any] | None:
        known = self._opened.get(id(raw))
        if known is None:
            opened = raw_json.open_object(raw, *place)
            known = raw, raw_json.open_list(raw) if opened is None else opened
            self._opened[id(raw)] = known
        return known[1]

    def open_text(self, raw: Any) -> str | None:
        """Return the text that a raw value is, or None."""
        return raw_json.open_text(raw)

    def source(self, modality: Modality, text: str, *, is_url: bool = True) -> MediaSource:
        """Return the media of a text as the parser read it."""
        name = (modality, is_url, text)
        if name not in self._sources:
            inline = self._short.content(text) if is_url and is_data_url(text) else None
            whole = self.whole_text(text) if inline is None else text
            self._sources[name] = MediaSource(modality, whole, is_url=is_url, content=inline)
        return self._sources[name]

    def whole_text(self, text: str) -> str:
        """Return a text with what was set aside of it."""
        return self._short.restore(text.encode()).decode()

    def bytes_of(self, raw: Any) -> bytes:
        """Return a raw value as it is in the request."""
        return self._short.restore(bytes(raw))

    def value(self, raw: Any) -> Any:
        """Return a raw value, parsed."""
        try:
            return msgspec.json.decode(self.bytes_of(raw))
        except raw_json.PARSE_ERRORS as error:
            raise RequestError(f"is not JSON: {str(error)[:200]}") from error

    def write(self, body: Object) -> bytes:
        """Return a body made of this request's members as JSON, raw ones byte for byte."""
        return self._short.restore(raw_json.encode(body))


def _form_of_members(body: Object) -> Form:
    if "messages" in body:
        return "chat"
    is_native = not body.keys().isdisjoint(("text", "input_ids", "input_embeds"))
    return "completions" if "prompt" in body and not is_native else "generate"
