"""Problems: their public part, and the exception that names one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from mmhash.json_pointer import Path, pointer_of

# Cut longer reasons, because they may quote the request.
_MAX_REASON = 300

# Quote at most this many characters of a text.
_MAX_SHOWN = 64


_ACRONYMS = {"json": "JSON", "url": "URL"}


class InvalidPart(NamedTuple):
    """An invalid part of a request: in its JSON body, its query, or its form."""

    reason: str
    pointer: str | None = None
    parameter: str | None = None
    part: str | None = None

    def fields(self) -> dict[str, str]:
        """Return the fields that are set."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    def __str__(self) -> str:
        place = self.pointer or self.parameter or self.part
        return f"{place}: {self.reason}" if place else self.reason


class ProblemSpec(NamedTuple):
    """The public part of a problem (RFC 9457)."""

    status: int
    detail: str

    def document(
        self, name: str, reason: str | None = None, parts: Sequence[InvalidPart] = ()
    ) -> dict[str, Any]:
        """Return the problem as a JSON document. OpenAI's clients read its member `error`."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        message = self.detail if reason is None else f"{self.detail} Reason: {reason}."
        return {
            "type": f"urn:mmhash:problem:{name}",
            "title": title_of(name),
            "status": self.status,
            "detail": self.detail,
            **({} if reason is None else {"reason": reason}),
            "error": {"message": message, "type": kind, "code": name},
            **({"errors": [part.fields() for part in parts]} if parts else {}),
        }


def title_of(name: str) -> str:
    """Return the title of a problem: `invalid-url` is `Invalid URL`."""
    title = " ".join(_ACRONYMS.get(word, word) for word in name.split("-"))
    return title[0].upper() + title[1:]


class Problem(Exception):  # noqa: N818  (the term of RFC 9457)
    """Why a request fails, by its name in `catalogue.PROBLEMS`.

    The reason says what was sent and what is expected, once or for each invalid part. It may quote
    the caller's own request, but no path or address of the server, and no other caller's bytes.
    """

    def __init__(
        self, name: str, parts: Sequence[InvalidPart] = (), *, reason: str | None = None
    ) -> None:
        super().__init__(name)
        self.name = name
        self.parts = parts
        self.reason = reason or "; ".join(map(str, parts)) or None
        if self.reason is not None:  # escape lone surrogates, which UTF-8 cannot encode
            self.reason = self.reason[:_MAX_REASON].encode(errors="backslashreplace").decode()


@contextmanager
def naming(*, path: Path = (), part: str | None = None) -> Iterator[None]:
    """Add the item's place to a problem: its path in JSON, or its part of a form."""
    try:
        yield
    except Problem as problem:
        if problem.reason is None or problem.parts or (not path and part is None):
            raise
        # Do not change this problem: other requests that waited for the same work share it.
        named = InvalidPart(problem.reason, pointer=pointer_of(path) or None, part=part)
        raise Problem(problem.name, [named]) from problem.__cause__


def shown(value: Any) -> str:
    """Return a value as a reason quotes it. Of a list or an object, name only the kind."""
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "an object"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = value if isinstance(value, str) else str(value)
    short = text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
    return repr(short) if isinstance(value, str) else short
