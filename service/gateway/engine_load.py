"""The requests of an engine, from its /metrics."""

import re

# The names that vLLM and SGLang give to the requests that run and those that wait.
_REQUESTS = re.compile(
    rb"^(?:vllm:num_requests_running|vllm:num_requests_waiting"
    rb"|sglang:num_running_reqs|sglang:num_queue_reqs)(?:\{[^}\n]*\})?"
    rb" (\d+(?:\.\d+)?(?:e[+-]?\d+)?)$",
    re.MULTILINE,
)


_MAX_REQUESTS = 10**9


def count_requests(exposition: bytes) -> int:
    """Return the requests that run and wait in all of the engine's ranks."""
    return int(min(_MAX_REQUESTS, sum(float(match) for match in _REQUESTS.findall(exposition))))
