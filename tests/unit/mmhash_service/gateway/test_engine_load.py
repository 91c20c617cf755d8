"""The requests of an engine, as vLLM 0.32.0 and SGLang 0.5.23 print them."""

import time

import pytest

from mmhash_service.gateway.engine_load import count_requests

VLLM = b"""# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
vllm:num_requests_running{engine="1",model_name="tiny"} 1.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="x"} 2.0
"""
SGLANG = b"""sglang:num_running_reqs{engine_type="unified",model_name="tiny"} 4.0
sglang:num_queue_reqs{engine_type="unified",model_name="tiny"} 1.0
sglang:num_running_reqs_offline_batch{model_name="tiny"} 9.0
"""


def test_running_and_waiting_requests_of_all_ranks_are_counted() -> None:
    assert count_requests(VLLM) == 6
    assert count_requests(SGLANG) == 5


def test_anything_else_is_no_request() -> None:
    assert count_requests(b"") == count_requests(b"vllm:num_requests_running{ NaN\n\xff") == 0


@pytest.mark.parametrize(
    "number", [b"1e999", b"9" * 400, b"1.2.3", b"1e", b"1+1", b"1e5e5", b"2.E"]
)
def test_any_number_is_counted_or_passed_over(number: bytes) -> None:
    """An error would end the probes of the worker."""
    lines = b"vllm:num_requests_running %b\nvllm:num_requests_waiting 1\n" % number
    assert count_requests(lines) in {1, 10**9}


BUCKET = b'vllm:e2e_request_latency_seconds_bucket{engine="0",le="%d",model_name="tiny"} 3.0\n'
REAL = b"".join(BUCKET % number for number in range(12_000))
HOSTILE = {
    "a number": b"vllm:num_requests_running " + b"9" * len(REAL) + b"x\n",
    "labels": b"vllm:num_requests_running{" + b"a" * len(REAL),
    "empty lines": b"\n" * len(REAL),
    "the same line": b"vllm:num_requests_running 1\n" * (len(REAL) // 28),
    "nearly the line": b"vllm:num_requests_runnin\n" * (len(REAL) // 25),
}


@pytest.mark.parametrize("page", HOSTILE.values(), ids=HOSTILE)
def test_no_page_takes_much_longer_than_an_engines_own(page: bytes) -> None:
    """A long number held the event loop for 0.1 s for each MiB."""
    assert duration(page) < 5 * duration(REAL)


def duration(page: bytes) -> float:
    """Return the shortest time of some."""
    times = []
    for _ in range(5):
        started = time.thread_time()
        count_requests(page)
        times.append(time.thread_time() - started)
    return min(times)
