"""The public part of a problem, of the service or of the guard."""

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
