"""A request as it is prepared for workers, and the decision which of them gets it. No I/O."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from mmhash_service.gateway.policy import Candidate, Ranked
from mmhash_service.gateway.unnamed import UnnamedBlocks
from mmhash_service.gateway.worker import Worker

# The load of a request that has a body and no plan, in tokens: a median prompt with an image.
UNPLANNED_TOKENS = 600

# The blocks of a request that its worker is expected to hold, at most: more would take the event
# loop longer, for each worker that is compared. Of tokens that are blocks of their
# own (SGLang) it is a text of 30 kB.
_MAX_EXPECTED = 8192


class PlanSize(NamedTuple):
    """The size of a planned prompt."""

    tokens: int
    blocks: int


class Prepared(NamedTuple):
    """A request as the workers of one engine get it."""

    body: bytes
    how: str
    """In the metrics: planned, or the reason for no plan."""
    first_key: bytes = b""
    plan: PlanSize | None = None
    matched: Mapping[str, int] = MappingProxyType({})
    event_ids: Sequence[int] = ()
    block_size: int = 1
    unnamed: UnnamedBlocks = UnnamedBlocks()
    """The blocks that events do not name, behind those of `event_ids`."""

    def candidate(self, worker: Worker, crowding: float) -> Candidate:
        """Return a worker as the policy sees it."""
        matched = self.matched.get(worker.url, 0)
        expected = worker.expected.run(self.event_ids, matched // self.block_size)
        expected *= self.block_size
        named = len(self.event_ids) * self.block_size
        sent = worker.sent.count_tokens(self.unnamed)
        # The name of an unnamed block covers those before, which no events of such a worker show.
        if sent and (matched + expected == named or worker.described.events is None):
            expected = named + sent - matched
        return Candidate(
            worker.url,
            matched_tokens=matched,
            load=worker.load,
            turn=worker.turn,
            is_healthy=worker.is_healthy,
            expected_tokens=expected,
            waiting=worker.waiting,
            crowding=crowding,
        )

    def unheld_blocks(self, ranked: Ranked) -> Sequence[int]:
        """Return the first blocks that a worker does not hold."""
        start = ranked.matched_tokens // self.block_size
        return self.event_ids[start : start + _MAX_EXPECTED]

    def block_after(self, tokens: int) -> bytes:
        """Return the name of the block behind these tokens, or else of the last one."""
        if not self.event_ids:
            return b""
        last = len(self.event_ids) - 1
        return b"%d" % self.event_ids[min(last, tokens // self.block_size)]


class Decision(NamedTuple):
    """The workers that may get a request, best first, and the request as the best one gets it."""

    workers: list[Ranked]
    best: Worker | None
    prepared: Prepared

    @property
    def new_tokens(self) -> int:
        """The tokens that the best worker has to compute for the request, by estimate."""
        plan = self.prepared.plan
        if plan is None or not self.workers:
            return UNPLANNED_TOKENS if self.prepared.body else 0
        return max(
            0, plan.tokens - self.workers[0].matched_tokens - self.workers[0].expected_tokens
        )
