"""The requests of an engine, as vLLM 0.32.0 and SGLang 0.5.23 print them."""

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
