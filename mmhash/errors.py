"""The tree of errors.

MMHashError
├── InputError            an input or argument is invalid
│   ├── InputTypeError    … because of its type (also a TypeError)
│   └── InputValueError   … because of its value (also a ValueError)
├── LimitError            an input is larger than a limit
├── TagError              a tag is not valid for this key, engine or tenant
├── TransportError        a handle cannot be opened, or its content does not match it
├── ServiceError          the service refused a request, or did not respond
├── ClosedError           a client is used after its close(), or an index after its stop()
└── DeviceError           a device cannot do the requested work
"""

import errno

_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS}
# Pillow raises this OSError without an errno.
_SHORT_OF_MEMORY = "out of memory error"


class MMHashError(Exception):
    """The root of all errors that mmhash raises on purpose."""


class InputError(MMHashError):
    """An input or argument is invalid: it cannot be hashed, split or parsed."""


class InputTypeError(InputError, TypeError):
    """An input or argument has an unsupported type."""


class InputValueError(InputError, ValueError):
    """An input or argument has a supported type and an unsupported value."""


class LimitError(MMHashError):
    """An input is larger than a limit."""


class TagError(MMHashError):
    """A tag is forged, expired, or belongs to another key, engine or tenant."""


class TransportError(MMHashError):
    """A handle cannot be opened, or its content does not match the handle."""


class ServiceError(MMHashError):
    """The service refused a request, or did not respond. Without a response, `status` is None.

    `type` and `detail` come from the problem in the response (docs/problems.md). `errors` lists the
    places in the request, each with its reason. `retry_after` is the number of seconds to wait
    before a retry, if the response says so.
    """

    def __init__(
        self,
        detail: str,
        *,
        status: int | None = None,
        problem: str = "about:blank",
        retry_after: float | None = None,
        errors: tuple[str, ...] = (),
    ) -> None:
        super().__init__(f"{detail} ({'; '.join(errors)})" if errors else detail)
        self.detail = detail
        self.errors = errors
        self.status = status
        self.type = problem
        self.retry_after = retry_after


class ClosedError(MMHashError):
    """A client was used after `close()`, or a KV index after `stop()`."""


class DeviceError(MMHashError):
    """A device cannot do the requested work."""


def is_shortage(error: BaseException) -> bool:
    """Return True if the process ran out of memory or descriptors: no fault of the item."""
    if isinstance(error, OSError):
        return error.errno in _SHORTAGES or str(error).startswith(_SHORT_OF_MEMORY)
    return isinstance(error, MemoryError)


def shown(number: int) -> str:
    """Return a number as text for an error message; Python refuses to convert very long numbers."""
    return str(number) if abs(number) < 1 << 128 else "a number of more than 128 bits"
