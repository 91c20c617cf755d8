"""`mmhash` with longer time-outs for the memo's store.

Run it as `python -m tests.support.patient_service serve`. Do not import it elsewhere, because the
import changes the process.
"""

from mmhash.cli import main
from mmhash_service.memo import breaker
from mmhash_service.memo import redis as redis_memo

_STORE_TIMEOUT_S = 30

breaker.TIMEOUT_S = breaker.PROBE_S = _STORE_TIMEOUT_S
redis_memo._OPTIONS["socket_timeout"] = 2 * _STORE_TIMEOUT_S
redis_memo._OPTIONS["socket_connect_timeout"] = 2 * _STORE_TIMEOUT_S

if __name__ == "__main__":
    main()
