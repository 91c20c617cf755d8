"""Waits for what other processes and threads do."""

import time
from collections.abc import Callable

from tests.support.service import TIMEOUT_S


def wait_until(
    condition: Callable[[], object],
    what: str = "",
    *,
    seconds: float = TIMEOUT_S,
    pause_s: float = 0.01,
) -> None:
    """Wait until the condition holds. If it does not in time, raise an error with `what`."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(pause_s)
