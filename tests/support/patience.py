"""More time for the memo's store: a busy machine takes longer than the service waits for it."""

import pytest

from mmhash_service.claims import redis as redis_claims
from mmhash_service.memo import breaker
from mmhash_service.memo import redis as redis_memo

TIMEOUT_S = 60


def be_patient(patch: pytest.MonkeyPatch) -> None:
    """Wait longer for a store in this process, until the end of the patch."""
    for module, name in (
        (breaker, "TIMEOUT_S"),
        (breaker, "PROBE_S"),
        (redis_claims, "TIMEOUT_S"),
    ):
        patch.setattr(module, name, TIMEOUT_S)
    for name in ("socket_timeout", "socket_connect_timeout"):
        patch.setitem(redis_memo._OPTIONS, name, TIMEOUT_S)
