"""The service's answers as values, checked against what was asked; refusals as errors.

An answer that is malformed, too long, encoded or about something else is a `ServiceError`.
"""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NamedTuple, NoReturn, Self, get_args

import httpcore

from mmhash.digest import DIGEST_SIZE, Algorithm, Digest
from mmhash.errors import ServiceError
from mmhash.view import Kind

# A longer body of a refusal is not read: the status tells enough.
MAX_REFUSAL = 64 << 10
# The service's own details have less than 200 characters.
_MAX_DETAIL = 1000
_MAX_SHOWN = 80
# A header that asks for a longer wait is taken as a day.
_MAX_RETRY_AFTER_S = 86_400.0

_OK = 200
_PROBLEM = "application/problem+json"
_MEMO: dict[str | None, Literal["hit", "miss"]] = {"hit": "hit", "miss": "miss"}
_KINDS = frozenset(get_args(Kind))
_HEX = re.compile("[0-9a-f]+")
_MAX_DIMENSIONS = 64
_MAX_NUMBER = 1 << 63


class AnswerTooLongError(Exception):
    """More bytes come than an answer to this request can have."""


class UnansweredError(ServiceError):
    """No answer came: the call may be made again."""


class Answer:
    """The head of an answer, and its body as far as it was received."""

    def __init__(self, status: int, reason: str, headers: dict[bytes, bytes], limit: int) -> None:
        self.status = status
        self.reason = reason
        self.headers = headers
        self.content = bytearray()
        self._limit = limit if status == _OK else MAX_REFUSAL

    @classmethod
    def begin(cls, response: httpcore.Response, limit: int) -> Self:
        """An answer whose head has come; of a good one at most `limit` bytes are received."""
        reason: bytes = response.extensions.get("reason_phrase", b"")
        headers = {name.lower(): value for name, value in response.headers}
        answer = cls(response.status, _printable(reason.decode("latin-1")), headers, limit)
        if response.status == _OK:
            encoding = headers.get(b"content-encoding", b"identity")
            if encoding.strip().lower() != b"identity":
                printable = _shown(encoding.decode("latin-1"))
                malformed(f"it has the Content-Encoding {printable}, and none was asked for")
            length = headers.get(b"content-length", b"")
            if length.isdigit() and int(length[:20]) > limit:
                raise AnswerTooLongError
        return answer

    def take(self, piece: bytes) -> bool:
        """Receive a piece; False if no more is wanted of the body of a refusal."""
        self.content += piece
        if len(self.content) <= self._limit:
            return True
        if self.status == _OK:
            raise AnswerTooLongError
        self.content.clear()
        return False


class Asked(NamedTuple):
    """The item that an answer has to be about; None for what was not known when it was asked."""

    algorithm: Algorithm
    engines: frozenset[str]
    kind: Kind | None = None
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    nbytes: int | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """One item: kind, dtype, shape, the digest of its `nbytes` bytes, its key, engines' spellings.

    `memo` says if the service's memo had it, `tag` is the service's signature, if asked for.
    """

    name: str | None
    kind: Kind
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    digest: Digest
    key: Digest
    engines: Mapping[str, Mapping[str, Any]]
    memo: Literal["hit", "miss"] | None
    tag: str | None

    @classmethod
    def parse(cls, payload: Any, asked: Asked) -> Self:
        """The item as an answer has it, if it is what was asked."""
        fields = _Fields(payload)
        shape = fields.take("shape", list)
        if len(shape) > _MAX_DIMENSIONS or not all(map(_is_natural, shape)):
            malformed(f"an item has the shape {_shown(shape)}")
        nbytes = fields.take("nbytes", int)
        if not _is_natural(nbytes):
            malformed(f"an item has {_shown(nbytes)} bytes")
        fields.check("kind", asked.kind, _KINDS)
        fields.check("dtype", asked.dtype)
        fields.check("algorithm", asked.algorithm)
        memo = fields.take_optional("memo")
        if memo is not None and memo not in _MEMO:
            malformed(f"an item has the memo {_shown(memo)}")
        engines = payload.get("engines", {})
        if not isinstance(engines, dict) or not engines.keys() <= asked.engines:
            names = ", ".join(sorted(asked.engines)) or "none"
            malformed(f"an item's 'engines' are others than those asked for: {names}")
        if not all(isinstance(spelled, dict) for spelled in engines.values()):
            malformed("an engine's spelling is not an object")
        if asked.shape not in {None, tuple(shape)}:
            malformed(f"an item has the shape {_shown(shape)}, not {list(asked.shape or ())}")
        if asked.nbytes not in {None, nbytes}:
            malformed(f"an item has {nbytes} bytes, not {asked.nbytes}")
        return cls(
            fields.take_optional("name"),
            payload["kind"],
            payload["dtype"],
            tuple(shape),
            nbytes,
            _digest(asked.algorithm, "digest", payload),
            _digest("blake3", "key", payload),
            engines,
            _MEMO.get(memo),
            fields.take_optional("tag"),
        )


class Annotated(NamedTuple):
    """A request with its items' keys put in, ready to forward; and the items, in its order."""

    request: dict[str, Any]
    items: list[Item]


def parse_items(payload: Any, asked: list[Asked]) -> list[Item]:
    """The items of an answer to `POST /hash`, one for each that was asked."""
    items = member(payload, "items", list)
    if len(items) != len(asked):
        malformed(f"it has {len(items)} items, not {len(asked)}")
    return [Item.parse(item, one) for item, one in zip(items, asked, strict=True)]


def member(payload: Any, name: str, kind: type) -> Any:
    """The member of an answer, if it has one of that type."""
    if not isinstance(payload, dict):
        malformed("it is not an object")
    return _Fields(payload).take(name, kind)


class _Fields:
    """The members of an object, each of the type that it has to be."""

    def __init__(self, payload: Any) -> None:
        if not isinstance(payload, dict):
            malformed("an item is not an object")
        self._told = payload

    def take(self, name: str, kind: type) -> Any:
        value = self._told.get(name)
        if type(value) is not kind:  # a bool is an int
            malformed(f"its {name!r} is not of type {kind.__name__}, or missing")
        return value

    def take_optional(self, name: str) -> str | None:
        value = self._told.get(name)
        if not (value is None or isinstance(value, str)):
            malformed(f"its {name!r} is not a text")
        return value

    def check(self, name: str, expected: str | None, known: frozenset[str] | None = None) -> None:
        value = self.take(name, str)
        if expected not in {None, value} or (known is not None and value not in known):
            wanted = "one that is known" if expected is None else repr(expected)
            malformed(f"an item has the {name} {_shown(value)}, not {wanted}")


def _is_natural(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MAX_NUMBER


def _digest(algorithm: Algorithm, name: str, payload: Mapping[str, Any]) -> Digest:
    text = payload.get(name)
    size = 2 * DIGEST_SIZE[algorithm]
    if not (isinstance(text, str) and len(text) == size and _HEX.fullmatch(text)):
        malformed(f"an item has the {name} {_shown(text)}, not {size} hex digits")
    return Digest(algorithm, bytes.fromhex(text))


def malformed(why: str) -> NoReturn:
    """Refuse an answer of status 200."""
    raise ServiceError(f"the answer does not fit the request: {why}", status=_OK)


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _printable(text: str) -> str:
    """The text of a server, short and without what would steer a terminal or a log."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text[:_MAX_DETAIL])


def error_from_response(answer: Answer) -> ServiceError:
    """The error that an answer tells."""
    payload = _problem(answer)
    detail, problem = payload.get("detail"), payload.get("type")
    if not isinstance(detail, str):
        detail = f"{answer.status} {answer.reason}"
        if 300 <= answer.status < 400:
            detail += ": redirects are not followed, give the address that they lead to"
    return ServiceError(
        _printable(detail),
        status=answer.status,
        problem=_printable(problem) if isinstance(problem, str) else "about:blank",
        retry_after=_seconds(answer.headers.get(b"retry-after", b"").decode("latin-1")),
    )


def _problem(answer: Answer) -> dict[str, Any]:
    """The problem of RFC 9457 in an answer; a proxy before the service has pages of its own."""
    if answer.headers.get(b"content-type") != _PROBLEM.encode():
        return {}
    try:
        payload = _parse(answer)
    except (ValueError, RecursionError):
        return {}
    return payload if isinstance(payload, dict) else {}


def _seconds(retry_after: str) -> float | None:
    """How long to wait, at most a day: the header has seconds, or a date."""
    try:
        if retry_after.isdigit():
            return min(float(retry_after), _MAX_RETRY_AFTER_S)
        seconds = parsedate_to_datetime(retry_after).timestamp() - time.time()
        return min(max(0.0, seconds), _MAX_RETRY_AFTER_S)
    except (ValueError, TypeError, LookupError, ArithmeticError, OSError):
        return None


def document(answer: Answer) -> Any:
    """The JSON of a good answer."""
    try:
        return _parse(answer)
    except (ValueError, RecursionError):
        raise ServiceError(
            "the answer is not JSON: is there another server?", status=answer.status
        ) from None


def _parse(answer: Answer) -> Any:
    # Half a pair of surrogates goes the same way here as in a request.
    text = answer.content.decode("utf-8", "surrogatepass")
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        raise ValueError("a name stands twice in an object")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
