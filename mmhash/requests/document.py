"""A request as it came, parsed once, whatever engines read it."""

from functools import cached_property
from typing import Any, Literal

from mmhash.requests import raw_json
from mmhash.requests.media_source import MediaSource, Modality
from mmhash.requests.media_text import is_data_url
from mmhash.requests.short_text import ShortText

Form = Literal["chat", "completions", "generate", "messages", "responses"]
"""The form of a request: its path says which one it is (forms.py)."""


class Document:
    """A request that is never changed."""

    def __init__(self, text: bytes | ShortText, form: Form | None = None) -> None:
        """Parse a request; without a form, it has the one that its members show (forms.py)."""
        self._short = text if isinstance(text, ShortText) else ShortText(text)
        self.members = raw_json.parse(self._short.text)
        """The members, with words in place of what was set aside: see `whole`."""
        self.form = form or _form_of_members(self.members)
        self._sources: dict[tuple[Modality, bool, str], MediaSource] = {}

    @property
    def text(self) -> bytes:
        """The request, byte for byte."""
        return self._short.whole

    @property
    def text_size(self) -> int:
        """The bytes of the request without those of its media, as far as engines have read them."""
        return len(self._short.text) - sum(len(source.text) for source in self._sources.values())

    @property
    def model(self) -> str:
        """The name of the model; empty if the request names none."""
        name = self.members.get("model")
        return name if isinstance(name, str) else ""

    def source(self, modality: Modality, text: str, *, is_url: bool = True) -> MediaSource:
        """Return the media of a text among the members."""
        name = (modality, is_url, text)
        if name not in self._sources:
            content = self._short.content(text) if is_url and is_data_url(text) else None
            kept = self.whole(text) if content is None else text
            self._sources[name] = MediaSource(modality, kept, is_url=is_url, content=content)
        return self._sources[name]

    def whole(self, value: Any) -> Any:
        """Return a value of the members as it is in the request."""
        if not self._short.has_words:
            return value
        if isinstance(value, str):
            return self._short.restore(value.encode()).decode() if len(value) > 40 else value
        if isinstance(value, list):
            return [self.whole(one) for one in value]
        if isinstance(value, dict):
            return {self.whole(name): self.whole(one) for name, one in value.items()}
        return value

    def spelled(self, name: str) -> bytes:
        """Return a member as it is spelled in the request."""
        return self._short.restore(bytes(self._raw[name]))

    @cached_property
    def _raw(self) -> dict[str, Any]:
        return self.open()

    def open(self) -> dict[str, Any]:
        """Return the members, raw, to be changed and written."""
        return raw_json.open_object(self._short.text)

    def write(self, members: dict[str, Any]) -> bytes:
        """Return raw members, some of them changed, as JSON."""
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
