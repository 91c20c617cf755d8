"""A request as an engine reads it: its media, and the places for their hashes."""

import copy
from functools import cached_property
from typing import Any, NamedTuple

from mmhash.engines.engine import ChatFormat, Engine, NativeFormat, RequestFields
from mmhash.engines.options import options_text, parse_options
from mmhash.errors import InputValueError
from mmhash.json_pointer import Path, pointer_of
from mmhash.requests import raw_json
from mmhash.requests.document import Document
from mmhash.requests.media_source import MediaSource, Modality
from mmhash.requests.raw_json import RequestError
from mmhash.tags import TAGS_MEMBER


class UnplannedError(InputValueError):
    """mmhash cannot plan a request. The message says why, the pointer where."""

    def __init__(self, reason: str, path: Path = ()) -> None:
        self.pointer = pointer_of(path) or None
        super().__init__(reason)


class UnreadableUrlError(UnplannedError):
    """A data: URL of a request has no content."""


class Place(NamedTuple):
    """An item of a request, and the member or list entry for its hash."""

    source: MediaSource
    path: Path | None = None
    """The object or list that holds the hash, or None if the engine takes no hash."""
    name: str | int = ""


class MediaPart(NamedTuple):
    """A content part that holds media, with its other members."""

    modality: Modality
    others: dict[str, Any]


class EngineRequest:
    """A document as an engine reads it: without the caller's hashes, with places for our own."""

    def __init__(
        self,
        document: Document,
        engine: Engine,
        release: str,
        fields: ChatFormat | NativeFormat | None = None,
    ) -> None:
        self.document, self.engine, self.release = document, engine, release
        self.fields = fields
        """Where the release takes hashes, or None if it takes none."""
        self.chat = document.members
        """The members of the chat that the engine makes of the request."""
        self.places: list[Place] = []
        self.hashes: list[Any] = []
        """A native request's list of hashes, with no hash filled in yet."""
        self.unclear: UnplannedError | None = None
        """Why the engine may read the request differently. Plans refuse such a request."""
        self.parts: list[dict[str, Any]] = []
        """The content part of each place in a chat."""
        self._modalities: dict[int, Modality] = {}
        callers = engine.caller_request_members & document.members.keys()
        self._removed: list[tuple[Path, str]] = [((), name) for name in callers]
        self._filled: list[tuple[Path, str | int, str]] = []
        self._tags: list[str] | None = None
        self._option_texts: dict[Modality, str] = {}

    # The readers of forms call these methods.

    def remove(self, holder: Any, path: Path, name: str) -> None:
        """Remove a member that callers may not set from the object at a path."""
        if isinstance(holder, dict) and name in holder:
            self._removed.append((path, name))

    def note_unclear(self, reason: str, path: Path = ()) -> None:
        """Note why the engine may read the request differently, and the place in the request."""
        self.unclear = self.unclear or UnplannedError(reason, path)

    def add_part(self, part: dict[str, Any], place: Place) -> None:
        """Add the media of a content part."""
        self.places.append(place)
        self.parts.append(part)
        self._modalities[id(part)] = place.source.modality

    # Plans read these members.

    @cached_property
    def members(self) -> dict[str, Any]:
        """The members of the request, except messages and lists of media."""
        left_out = {"messages", *self.engine.media_members}
        left_out |= {name for path, name in self._removed if not path}
        members = self.chat.items()
        return {name: self._whole(one) for name, one in members if name not in left_out}

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages of a chat, with a MediaPart for each content part that has media."""
        if self.parts:
            return [self._message(message) for message in self.chat["messages"]]
        messages: list[dict[str, Any]] = self._whole(self.chat["messages"])
        return messages

    def _message(self, message: dict[str, Any]) -> dict[str, Any]:
        content = message.get("content")
        if not isinstance(content, list):
            made: dict[str, Any] = self._whole(message)
            return made
        parts = [self._part(part) for part in content]
        return {
            name: parts if name == "content" else self._whole(one) for name, one in message.items()
        }

    def _part(self, part: Any) -> Any:
        modality = self._modalities.get(id(part))
        if modality is None:
            return self._whole(part)
        fields = self.fields.media if isinstance(self.fields, ChatFormat) else ()
        media = {field.name for field in fields}
        others = {name: one for name, one in part.items() if name not in media}
        return MediaPart(modality, self._whole(others))

    def _whole(self, value: Any) -> Any:
        """Return a value from the members with its original text."""
        return value if self._has_words_in_media_only else self.document.whole(value)

    @cached_property
    def _has_words_in_media_only(self) -> bool:
        """True if each placeholder word of a chat stands for the content of a part of its own."""
        words = sum(place.source.has_word for place in self.places)
        return words == self.document.words and self.document.form == "chat"

    def options(self, modality: Modality) -> str:
        """Return the canonical text of the options that a hash of this modality must cover."""
        if not self._given_options:
            return ""
        if modality not in self._option_texts:
            formats, given = self.engine.annotate, self._given_options
            if formats is not None and self.document.form != "generate":
                given = formats.unhashed(given, self.release, modality)
            self._option_texts[modality] = options_text(given)
        return self._option_texts[modality]

    @cached_property
    def _given_options(self) -> dict[str, Any]:
        """The request's options for processors, with numbers as they are spelled."""
        formats = self.engine.annotate
        if formats is None:
            return {}
        is_chat = self.document.form != "generate"
        names = formats.chat_options if is_chat else formats.native_options
        try:
            return {
                name: parse_options(self.document.spelled(name))
                for name in names
                if name in self.chat
            }
        except RecursionError as error:
            raise RequestError("has options that are nested too deeply") from error

    # These methods insert hashes.

    @property
    def content_prefix(self) -> str | None:
        """The prefix of a hash that is the SHA-256 of the bytes, or None for hashes of keys."""
        return self.fields.content_prefix if isinstance(self.fields, ChatFormat) else None

    @property
    def has_all_places(self) -> bool:
        """True if every item has a place for its hash."""
        return all(place.path is not None for place in self.places)

    def hash_of(
        self, source: MediaSource, fields: RequestFields, fetched: bytes | None = None
    ) -> str | None:
        """Return an item's hash, from its key's fields for the engine or from its bytes.

        `fetched` is the SHA-256 of remote media. Without `fetched`, remote media have no hash of
        bytes.
        """
        if self.fields is None:
            return None
        if self.content_prefix is None:
            return str(fields[self.fields.hash_name])
        sha256 = fetched if source.is_remote else source.sha256()
        return None if sha256 is None else f"{self.content_prefix}{sha256.hex()}"

    def fill(self, place: Place, value: str | None) -> None:
        """Put a hash in its place, if there is a hash and a place."""
        if value is not None and place.path is not None:
            self._filled.append((place.path, place.name, value))

    def leave_hashes_out(self) -> None:
        """Drop all hashes of a native request, which must have a hash for every item or none."""
        self._filled.clear()

    def set_tags(self, tags: list[str]) -> None:
        """Add the tags of the hashes to the request."""
        self._tags = tags

    def write(self) -> bytes:
        """Return the request as JSON: the original bytes if nothing has changed."""
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
