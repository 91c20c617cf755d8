"""The requests of an engine, from its /metrics."""

import re

# The names that vLLM and SGLang give to the requests that run and those that wait.
_NAMES = (
    b"vllm:num_requests_running",
    b"vllm:num_requests_waiting",
    b"sglang:num_running_reqs",
    b"sglang:num_queue_reqs",
)
_NUMBER = re.compile(rb"\d{1,20}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?")

# A line for each data-parallel rank.
_MAX_LINES = 256

_MAX_REQUESTS = 10**9


def count_requests(exposition: bytes) -> int:
    """Return the requests that run and wait in all of the engine's ranks.

    Only lines that begin with a name are parsed, because pages may have 1 MiB.
    """
    count = 0.0
    for name in _NAMES:
        for rest in (b"\n" + exposition).split(b"\n" + name, _MAX_LINES)[1:]:
            labels, _, number = rest.partition(b"\n")[0].rpartition(b" ")
            if labels[:1] in {b"", b"{"} and _NUMBER.fullmatch(number):
                count += float(number)
    return int(min(_MAX_REQUESTS, count))
