"""The public part of a problem, and the exception that names it, for the service and the guard."""

from collections.abc import Sequence
from typing import Any, NamedTuple

# A reason may quote a value of the request.
_MAX_REASON = 300


class ProblemSpec(NamedTuple):
    """The public part of a problem (RFC 9457)."""

    status: int
    title: str
    detail: str

    def document(self, name: str, reason: str | None = None) -> dict[str, Any]:
        """Return the problem as a JSON document; OpenAI's clients read its member `error`."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        message = self.detail if reason is None else f"{self.detail} Reason: {reason}."
        return {
            "type": f"urn:mmhash:problem:{name}",
            **self._asdict(),
            **({} if reason is None else {"reason": reason}),
            "error": {"message": message, "type": kind, "code": name},
        }


class InvalidPart(NamedTuple):
    """An invalid part of a request: a place in its body, or a parameter of its query."""

    reason: str
    pointer: str | None = None
    parameter: str | None = None


class Problem(Exception):  # noqa: N818  (the term of RFC 9457)
    """A request that cannot be answered, by its name in `catalogue.PROBLEMS`.

    The parts contain only names from the schema. The reason may quote values of the caller's own
    request, but no path, address or other caller's bytes.
    """

    def __init__(
        self, name: str, parts: Sequence[InvalidPart] = (), *, reason: str | None = None
    ) -> None:
        super().__init__(name)
        self.name = name
        self.parts = parts
        self.reason = None
        if reason is not None:  # without lone surrogates, which JSON cannot represent
            self.reason = reason[:_MAX_REASON].encode(errors="backslashreplace").decode()
