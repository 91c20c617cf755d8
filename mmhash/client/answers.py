"""What the service answers, as values; and as an error, if it is a refusal."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NamedTuple, Self

import httpx

from mmhash.digest import Algorithm, Digest
from mmhash.errors import ServiceError
from mmhash.view import Kind

_PROBLEM = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Item:
    """One item: what it is, the digest of its `nbytes` bytes, its key, and what engines call it.

    `memo` says whether the service's memo knew it, `tag` is the service's signature, if asked for.
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
    def parse(cls, told: Mapping[str, Any]) -> Self:
        """The item as an answer tells it."""
        return cls(
            told["name"],
            told["kind"],
            told["dtype"],
            tuple(told["shape"]),
            told["nbytes"],
            _digest(told["algorithm"], told["digest"]),
            _digest("blake3", told["key"]),
            told.get("engines", {}),
            told.get("memo"),
            told.get("tag"),
        )


class Annotated(NamedTuple):
    """A request with its items' keys put in, ready to forward; and the items, in its order."""

    request: dict[str, Any]
    items: list[Item]


def _digest(algorithm: Algorithm, text: str) -> Digest:
    return Digest(algorithm, bytes.fromhex(text))


def unanswered(error: httpx.TransportError) -> ServiceError:
    """The error of a request to which no answer came."""
    return ServiceError(f"no answer: {str(error) or type(error).__name__}")


def refusal(response: httpx.Response) -> ServiceError:
    """The error that an answer tells."""
    told = _problem(response)
    return ServiceError(
        told.get("detail", f"{response.status_code} {response.reason_phrase}"),
        status=response.status_code,
        problem=told.get("type", "about:blank"),
        retry_after=_seconds(response.headers.get("retry-after", "")),
    )


def _problem(response: httpx.Response) -> dict[str, str]:
    """The problem of RFC 9457 that an answer is; whatever stands before the service has its own."""
    if response.headers.get("content-type") != _PROBLEM:
        return {}
    try:
        told = response.json()
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _seconds(retry_after: str) -> float | None:
    """How long to wait: the header has seconds, or a date."""
    try:
        if retry_after.isdigit():
            return float(retry_after)
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return None


def document(response: httpx.Response) -> Any:
    """The JSON of a good answer."""
    try:
        return json.loads(response.content)
    except ValueError:
        raise ServiceError(
            "the answer is not JSON: is there another server?", status=response.status_code
        ) from None
