"""What can go wrong, as one tree.

MMHashError
├── InputError            what was given cannot be hashed, cut or parsed
│   ├── InputTypeError    … for what it is (also a TypeError)
│   └── InputValueError   … for what it holds (also a ValueError)
├── LimitError            what was given is larger than is allowed
├── TransportError        a handle cannot be opened, or is not what it says
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


class TransportError(MMHashError):
    """A handle cannot be opened, or is not what it says."""


class DeviceError(MMHashError):
    """A device cannot do what was asked of it."""
