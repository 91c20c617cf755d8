"""The requests of an engine, from its /metrics."""

import re

# The names that vLLM and SGLang give to the requests that run and those that wait.
_REQUESTS = re.compile(
    rb"^(?:vllm:num_requests_running|vllm:num_requests_waiting"
    rb"|sglang:num_running_reqs|sglang:num_queue_reqs)(?:\{[^}\n]*\})? (\d[0-9.eE+]*)$",
    re.MULTILINE,
)


def count_requests(exposition: bytes) -> int:
    """Return the requests that run and wait in all of the engine's ranks."""
    return int(sum(float(match) for match in _REQUESTS.findall(exposition)))
