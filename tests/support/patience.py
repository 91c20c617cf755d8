"""More time for the memo's store, in this process or in a service.

The service waits 50 ms for a lookup, and then does without the store. A busy
machine takes longer now and then, which makes a hit a miss and leaves an entry out.
"""

import pytest

from mmhash_service.memo import breaker
from mmhash_service.memo import redis as redis_memo
from tests.support.service import COMMAND

STORE_TIMEOUT_S = 30

PATIENT_COMMAND = (COMMAND[0], "-m", "tests.support.patient_service", *COMMAND[3:])


def be_patient(patch: pytest.MonkeyPatch) -> None:
    """Wait longer for a store in this process, until the end of the patch."""
    for name in ("TIMEOUT_S", "PROBE_S"):
        patch.setattr(breaker, name, STORE_TIMEOUT_S)
    for name in ("socket_timeout", "socket_connect_timeout"):
        patch.setitem(redis_memo._OPTIONS, name, 2 * STORE_TIMEOUT_S)
