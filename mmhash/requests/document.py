"""A request as the client sent it, parsed once for all engines."""

from functools import cached_property
from typing import Any, Literal

from mmhash.json_pointer import Path
from mmhash.requests import raw_json
from mmhash.requests.media_source import MediaSource, Modality, is_data_url
from mmhash.requests.short_text import WORD_LENGTH, ShortText

Form = Literal["chat", "completions", "generate", "messages", "responses"]
"""The form of a request, determined by its path (forms.py)."""


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

    def source(
        self, modality: Modality, text: str, path: Path = (), *, is_url: bool = True
    ) -> MediaSource:
        """Return the media to which a text in the members refers.

        `path` is the text's place, if known.
        """
        name = (modality, is_url, text)
        if name not in self._sources:
            is_inline = is_data_url(text) if is_url else len(text) == WORD_LENGTH
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
        if not self._short.has_words:
            return value
        if isinstance(value, str):
            return (
                self._short.restore(value.encode()).decode() if len(value) >= WORD_LENGTH else value
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
