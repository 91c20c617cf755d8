"""The tokens of a request that a worker has cached or is expected to have."""

import pytest

from mmhash_service.gateway.expected import UnnamedBlocks
from mmhash_service.gateway.router import Prepared
from mmhash_service.gateway.settings import GatewaySettings
from mmhash_service.gateway.worker import Worker
from mmhash_service.gateway.worker_spec import parse_worker

URL = "http://a:1"
UNNAMED = UnnamedBlocks([b"1", b"2"], 32)


def tokens(spec: str, matched: int, sent: UnnamedBlocks = UNNAMED) -> tuple[int, int]:
    """Return the matched and expected tokens of a prompt with 3 named tokens and 64 others."""
    worker = Worker(parse_worker(f"{URL},engine=sglang@0.5.23{spec}"), GatewaySettings())
    worker.sent.add(sent, 1000)
    prepared = Prepared(
        b"", "planned", matched={URL: matched}, event_ids=[7, 8, 9], unnamed=UNNAMED
    )
    candidate = prepared.candidate(worker, 0.0)
    return candidate.matched_tokens, candidate.expected_tokens


@pytest.mark.parametrize(("matched", "expected"), [(0, 0), (2, 0), (3, 64)])
def test_sent_blocks_count_after_the_blocks_that_events_list(matched: int, expected: int) -> None:
    assert tokens(",events=tcp://a:2", matched) == (matched, expected)


def test_sent_blocks_count_if_the_worker_has_no_events() -> None:
    assert tokens("", 0) == (0, 3 + 64)
    assert tokens("", 0, UnnamedBlocks([b"1"], 32)) == (0, 3 + 32)
    assert tokens("", 0, UnnamedBlocks([b"2"], 32)) == (0, 0)
