"""The public part of a problem, of the service or of the guard, and the exception that names one.

`problems` has the catalogue. It imports the engines, which the settings do not need.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple


class ProblemSpec(NamedTuple):
    """The public part of a problem (RFC 9457)."""

    status: int
    title: str
    detail: str

    def document(self, name: str) -> dict[str, Any]:
        """Return the JSON document of the problem; OpenAI's clients read its member `error`."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {
            "type": f"urn:mmhash:problem:{name}",
            **self._asdict(),
            "error": {"message": self.detail, "type": kind, "code": name},
        }


class InvalidPart(NamedTuple):
    """An invalid part of a request: a place in its body, or a parameter of its query."""

    reason: str
    pointer: str | None = None
    parameter: str | None = None


class Problem(Exception):  # noqa: N818  (the term of RFC 9457)
    """A request that cannot be answered, by its name in `problems.PROBLEMS`.

    The parts name only what the schema names: nothing of the client's.
    """

    def __init__(self, name: str, parts: Sequence[InvalidPart] = ()) -> None:
        super().__init__(name)
        self.name = name
        self.parts = parts
