"""What can go wrong, as one tree.

MMHashError
├── InputError            what was given cannot be hashed, cut or parsed
│   ├── InputTypeError    … for what it is (also a TypeError)
│   └── InputValueError   … for what it holds (also a ValueError)
├── LimitError            what was given is larger than is allowed
├── TagError              a tag does not vouch for what is asked
├── TransportError        a handle cannot be opened, or is not what it says
├── ServiceError          the service refuses a call, or does not answer
└── DeviceError           a device cannot do what was asked of it
"""


class MMHashError(Exception):
    """Root of all errors that mmhash raises on purpose."""


class InputError(MMHashError):
    """What was given cannot be hashed, cut or parsed."""


class InputTypeError(InputError, TypeError):
    """The given object is of a kind that has no content to hash."""


class InputValueError(InputError, ValueError):
    """The given object is of a good kind, but its value is not."""


class LimitError(MMHashError):
    """What was given is larger than is allowed."""


class TagError(MMHashError):
    """A tag does not vouch for what is asked: forged, expired, or made for something else."""


class TransportError(MMHashError):
    """A handle cannot be opened, or is not what it says."""


class ServiceError(MMHashError):
    """The service refuses a call, or does not answer: then it has no `status`.

    `type` is that of the problem which it tells (docs/http.md), `detail` its words; `retry_after`
    is in how many seconds to call again, if it says so.
    """

    def __init__(
        self,
        detail: str,
        *,
        status: int | None = None,
        problem: str = "about:blank",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.status = status
        self.type = problem
        self.retry_after = retry_after


class DeviceError(MMHashError):
    """A device cannot do what was asked of it."""
