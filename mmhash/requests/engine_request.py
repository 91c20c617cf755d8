"""A request as one engine reads it: its media, and the places of their hashes."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from msgspec import Raw

from mmhash.engines.engine import ChatFormat, Engine, NativeFormat, RequestFields
from mmhash.engines.options import options_text, parse_options
from mmhash.requests.document import Document
from mmhash.requests.media_source import MediaSource, Modality
from mmhash.requests.raw_json import RequestError
from mmhash.tags import TAGS_MEMBER


class Place(NamedTuple):
    """One of the media of a request, and the member or entry that is to hold its hash."""

    source: MediaSource
    container: Any = None
    """None if the engine takes no hash for it."""
    name: str | int = ""


class MediaPart(NamedTuple):
    """A content part that is one of the media, with its members beside the media."""

    modality: Modality
    others: dict[str, Any]


class EngineRequest:
    """A document without its callers' hashes for an engine, and with places for ours."""

    def __init__(
        self,
        document: Document,
        engine: Engine,
        release: str,
        fields: ChatFormat | NativeFormat | None = None,
    ) -> None:
        self.document, self.engine, self.release = document, engine, release
        self.fields = fields
        """Where the release takes hashes; None if it takes none."""
        self.body = dict(document.body)
        self.places: list[Place] = []
        self.unclear: str | None = None
        """Why the engine may read the request in another way; a plan refuses such a request."""
        self._parts: dict[int, Modality] = {}
        self._is_changed = False
        for name in engine.caller_request_members:
            self.remove(self.body, name)

    # What the readers of forms do.

    def remove(self, members: dict[str, Any], name: str) -> None:
        """Remove a member that a caller may not set."""
        if members.pop(name, None) is not None:
            self._is_changed = True

    def replace(self, name: str, value: Any) -> None:
        """Replace a member of the request."""
        self.body[name] = value
        self._is_changed = True

    def note_unclear(self, reason: str) -> None:
        """Note that the engine may read the request in another way."""
        self.unclear = self.unclear or reason

    def add_part(self, part: dict[str, Any], place: Place) -> None:
        """Add the media of a content part."""
        self.places.append(place)
        self._parts[id(part)] = place.source.modality

    # What a plan reads.

    @cached_property
    def members(self) -> "Members":
        """The members of the request, each parsed when it is read."""
        return Members(self.document, self.body)

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages of a chat; a content part that is one of the media is a MediaPart."""
        return [
            {name: self._value(value) for name, value in message.items()}
            for message in self.body["messages"]
        ]

    def _value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._part(one) if isinstance(one, dict) else self._value(one) for one in value]
        if isinstance(value, dict):
            return {name: self._value(one) for name, one in value.items()}
        return self.document.value(value) if isinstance(value, Raw) else value

    def _part(self, part: dict[str, Any]) -> Any:
        modality = self._parts.get(id(part))
        if modality is None or not isinstance(self.fields, ChatFormat):
            return self._value(part)
        media = {field.name for field in self.fields.media}
        others = {name: one for name, one in part.items() if name not in media}
        return MediaPart(modality, self._value(others))

    def options(self, modality: Modality) -> str:
        """Return the canonical text of the options that a hash of such media has to name."""
        return self._options[modality]

    @cached_property
    def _options(self) -> dict[Modality, str]:
        formats = self.engine.annotate
        if formats is None:
            return {"image": "", "video": "", "audio": ""}
        is_chat = self.document.form == "chat"
        names = formats.chat_options if is_chat else formats.native_options
        try:
            given = {
                name: parse_options(self.document.bytes_of(self.body[name]))
                for name in names
                if name in self.body
            }
        except RecursionError as error:
            raise RequestError("has options that are nested too deep") from error
        modalities: tuple[Modality, ...] = ("image", "video", "audio")
        if not is_chat:
            return dict.fromkeys(modalities, options_text(given))
        return {one: options_text(formats.unhashed(given, self.release, one)) for one in modalities}

    # Hashes in.

    @property
    def content_prefix(self) -> str | None:
        """What is before the SHA-256 of the media's bytes; None if the hash is of the key."""
        return self.fields.content_prefix if isinstance(self.fields, ChatFormat) else None

    @property
    def has_all_places(self) -> bool:
        """True if each of the media has a place for its hash."""
        return all(place.container is not None for place in self.places)

    def hash_of(
        self, source: MediaSource, fields: RequestFields, fetched: bytes | None = None
    ) -> str | None:
        """Return the hash of media: of its key's fields for the engine, or of its bytes.

        `fetched` is the SHA-256 of media that is remote; without it, such media has no hash of its
        bytes.
        """
        if self.fields is None:
            return None
        if self.content_prefix is None:
            return str(fields[self.fields.hash_name])
        sha256 = fetched if source.is_remote else source.sha256()
        return None if sha256 is None else f"{self.content_prefix}{sha256.hex()}"

    def fill(self, place: Place, value: str | None) -> None:
        """Put a hash in its place, if both are there."""
        if value is not None and place.container is not None:
            place.container[place.name] = value
            self._is_changed = True

    def leave_hashes_out(self) -> None:
        """Remove the list of hashes of a native request: it has one for each item, or none."""
        if isinstance(self.fields, NativeFormat):
            self.body.pop(self.fields.hashes, None)

    def set_tags(self, tags: list[str]) -> None:
        """Add the tags of its hashes to the request."""
        self.replace(TAGS_MEMBER, tags)

    def write(self) -> bytes:
        """Return the request as JSON: the bytes that came, if nothing has changed."""
        return self.document.write(self.body) if self._is_changed else self.document.text


class Members(Mapping[str, Any]):
    """The members of a request, each parsed when it is read."""

    def __init__(self, document: Document, body: Mapping[str, Any]) -> None:
        self._document, self._body = document, body
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            value = self._body[name]
            self._values[name] = self._document.value(value) if isinstance(value, Raw) else value
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._body)

    def __len__(self) -> int:
        return len(self._body)
