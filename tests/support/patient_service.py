"""`mmhash`, with more time for the memo's store: `python -m tests.support.patient_service serve`.

The service waits 50 ms for a lookup and 1 s for a claim, and then does without the store. A busy
machine takes longer now and then, which makes a hit a miss and leaves an entry out.
"""

from mmhash.cli import main
from mmhash_service.claims import redis as redis_claims
from mmhash_service.memo import breaker
from mmhash_service.memo import redis as redis_memo
from tests.support.service import COMMAND, TIMEOUT_S

PATIENT_COMMAND = (COMMAND[0], "-m", "tests.support.patient_service", *COMMAND[3:])

# Not in a function: each worker imports this module.
breaker.TIMEOUT_S = breaker.PROBE_S = redis_claims.TIMEOUT_S = TIMEOUT_S / 4
redis_memo._OPTIONS |= {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S}

if __name__ == "__main__":
    main()
