"""SIGHUP: a request to reload, or the end of the terminal that started the server."""

import os


class Terminal:
    """The controlling terminal of this process, or None."""

    def __init__(self) -> None:
        self._existed = _has_terminal()

    @property
    def is_gone(self) -> bool:
        """True after the terminal was closed; a service manager's process never had one."""
        return self._existed and not _has_terminal()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
