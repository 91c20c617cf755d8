"""Failures of fetches: the problem of each, and details that only the log shows."""

import httpcore


class Refused(Exception):  # noqa: N818  (named after its problem)
    """The URL, its address or a redirect is not allowed."""


class Failed(Exception):  # noqa: N818  (as above)
    """The response or the file is not acceptable."""


class FetchFailure(Exception):  # noqa: N818  (never raised itself: the cause of a problem)
    """The cause of a problem, with details for the log only: host, address, status, error."""

    # Part of the text comes from the host.
    _MAX_LENGTH = 300

    def __init__(self, source: str, error: Exception) -> None:
        super().__init__(f"{source}: {error!r}"[: self._MAX_LENGTH])


PROBLEMS: dict[type[Exception], str] = {
    Refused: "url-refused",
    Failed: "url-failed",
    httpcore.NetworkError: "url-failed",
    httpcore.ProtocolError: "url-failed",
    httpcore.TimeoutException: "url-timeout",
    TimeoutError: "url-timeout",
}


def problem_name(error: Exception) -> str:
    """Return the name of the problem for an error."""
    return next(name for kind, name in PROBLEMS.items() if isinstance(error, kind))
