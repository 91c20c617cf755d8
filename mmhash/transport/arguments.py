"""Arguments of pools: whole numbers and times within bounds, or a named error."""

import math

from mmhash.arguments import check_int
from mmhash.errors import InputTypeError, InputValueError
from mmhash.transport.layout import MAX_CONSUMERS

# More than any host has, and few enough for all offsets.
MAX_POOL_BYTES = 1 << 46
MAX_WORKERS = 1 << 16
_MAX_TIMEOUT_S = 10.0 * 365 * 24 * 3600


def check_pool(nbytes: int, consumers: int, timeout: float) -> None:
    """Refuse an invalid size, number of consumers or time-out of a pool."""
    check_int("nbytes", nbytes)
    check_int("consumers", consumers)
    if nbytes < 1:
        raise InputValueError(f"a pool has at least 1 byte, not {max(nbytes, -(1 << 64))}")
    if nbytes > MAX_POOL_BYTES:
        raise InputValueError(f"a pool has at most {MAX_POOL_BYTES} bytes")
    if not 0 < consumers <= MAX_CONSUMERS:
        raise InputValueError(f"a pool has 1 to {MAX_CONSUMERS} consumers")
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise InputTypeError(f"timeout is a number of seconds, not {type(timeout).__name__}")
    # A lease that is never taken back would fill the pool: NaN is later than nothing.
    if not 0 <= timeout <= _MAX_TIMEOUT_S or math.isnan(timeout):
        raise InputValueError("timeout is 0 seconds to 10 years")
