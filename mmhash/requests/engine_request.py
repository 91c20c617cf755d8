"""A request as one engine reads it: its media, and the places of their hashes."""

import copy
from functools import cached_property
from typing import Any, NamedTuple

from mmhash.engines.engine import ChatFormat, Engine, NativeFormat, RequestFields
from mmhash.engines.options import options_text, parse_options
from mmhash.errors import InputValueError
from mmhash.requests import raw_json
from mmhash.requests.document import Document
from mmhash.requests.media_source import MediaSource, Modality
from mmhash.requests.raw_json import Path, RequestError
from mmhash.tags import TAGS_MEMBER


class UnplannedError(InputValueError):
    """A request has something for which there is no plan; the text says what it is."""


class Place(NamedTuple):
    """One of the media of a request, and the member or entry that is to hold its hash."""

    source: MediaSource
    path: Path | None = None
    """The object or list that is to hold the hash; None if the engine takes none."""
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
        self.chat = document.members
        """The members of the chat that the engine makes of a request of another form."""
        self.places: list[Place] = []
        self.hashes: list[Any] = []
        """The list of hashes of a native request, without its hashes."""
        self.unclear: str | None = None
        """Why the engine may read the request in another way; a plan refuses such a request."""
        self.parts: list[dict[str, Any]] = []
        """The content part of each place of a chat."""
        self._modalities: dict[int, Modality] = {}
        self._removed: list[tuple[Path, str]] = []
        self._filled: list[tuple[Path, str | int, str]] = []
        self._tags: list[str] | None = None
        for name in engine.caller_request_members:
            self.remove(document.members, (), name)

    # What the readers of forms do.

    def remove(self, holder: Any, path: Path, name: str) -> None:
        """Remove a member that a caller may not set, if an object at a path has it."""
        if isinstance(holder, dict) and name in holder:
            self._removed.append((path, name))

    def note_unclear(self, reason: str) -> None:
        """Note that the engine may read the request in another way."""
        self.unclear = self.unclear or reason

    def add_part(self, part: dict[str, Any], place: Place) -> None:
        """Add the media of a content part."""
        self.places.append(place)
        self.parts.append(part)
        self._modalities[id(part)] = place.source.modality

    # What a plan reads.

    @cached_property
    def members(self) -> dict[str, Any]:
        """The members of the request but its messages and lists of media."""
        left_out = {"messages", *self.engine.media_members}
        left_out |= {name for path, name in self._removed if not path}
        members = self.chat.items()
        return {name: self.document.whole(one) for name, one in members if name not in left_out}

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages of a chat; a content part that is one of the media is a MediaPart."""
        return [self._message(message) for message in self.chat["messages"]]

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        content = message.get("content")
        if not isinstance(content, list):
            made: dict[str, Any] = self.document.whole(message)
            return made
        parts = [self._part(part) for part in content]
        return {
            name: parts if name == "content" else self.document.whole(one)
            for name, one in message.items()
        }

    def _part(self, part: Any) -> Any:
        modality = self._modalities.get(id(part))
        if modality is None:
            return self.document.whole(part)
        fields = self.fields.media if isinstance(self.fields, ChatFormat) else ()
        media = {field.name for field in fields}
        others = {name: one for name, one in part.items() if name not in media}
        return MediaPart(modality, self.document.whole(others))

    def options(self, modality: Modality) -> str:
        """Return the canonical text of the options that a hash of such media has to name."""
        return self._options[modality]

    @cached_property
    def _options(self) -> dict[Modality, str]:
        formats = self.engine.annotate
        if formats is None:
            return {"image": "", "video": "", "audio": ""}
        is_chat = self.document.form != "generate"
        names = formats.chat_options if is_chat else formats.native_options
        try:
            given = {
                name: parse_options(self.document.spelled(name))
                for name in names
                if name in self.chat
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
        return all(place.path is not None for place in self.places)

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
        if value is not None and place.path is not None:
            self._filled.append((place.path, place.name, value))

    def leave_hashes_out(self) -> None:
        """Leave out the hashes of a native request: it has one for each item, or none."""
        self._filled.clear()

    def set_tags(self, tags: list[str]) -> None:
        """Add the tags of its hashes to the request."""
        self._tags = tags

    def write(self) -> bytes:
        """Return the request as JSON: the bytes that came, if nothing has changed."""
        if not (self._removed or self._filled or self._tags is not None):
            return self.document.text
        members = self.document.open()
        for path, name in self._removed:
            del raw_json.open_at(members, path)[name]
        if self._filled and isinstance(self.fields, NativeFormat):
            members[self.fields.hashes] = copy.deepcopy(self.hashes)
        for path, at, value in self._filled:
            raw_json.open_at(members, path)[at] = value
        if self._tags is not None:
            members[TAGS_MEMBER] = self._tags
        return self.document.write(members)
