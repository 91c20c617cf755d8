"""How a URL can fail, the problem that each way is, and what the log alone is told of it."""

import httpcore


class Refused(Exception):  # noqa: N818  (the word of its problem)
    """The URL leads where the server does not go."""


class Failed(Exception):  # noqa: N818  (as above)
    """What it leads to is not what it should be."""


class FetchFailure(Exception):  # noqa: N818  (it is the cause of a problem, not an error of its own)
    """What the public is not told: a host, an address, a status, what a package said."""

    # A host chooses some of these words.
    _MAX_LENGTH = 300

    def __init__(self, where: str, why: Exception) -> None:
        super().__init__(f"{where}: {why!r}"[: self._MAX_LENGTH])


PROBLEMS: dict[type[Exception], str] = {
    Refused: "url-refused",
    Failed: "url-failed",
    httpcore.NetworkError: "url-failed",
    httpcore.ProtocolError: "url-failed",
    httpcore.TimeoutException: "url-timeout",
    TimeoutError: "url-timeout",
}


def problem_name(error: Exception) -> str:
    """The name of the problem that one of these errors is."""
    return next(name for kind, name in PROBLEMS.items() if isinstance(error, kind))
