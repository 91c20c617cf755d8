"""A request that goes to a worker, as the fleet counts it: while it is computed, answered, ended.

The gateway's proxy and the picker share it: the one sends the request itself, the other learns from
Envoy what has become of it.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

from mmhash_service.gateway.fleet import Fleet
from mmhash_service.gateway.router import NO_PROMPT, Decision
from mmhash_service.gateway.worker import Worker
from mmhash_service.telemetry import metrics

# The seconds after a response in which the events of its prompt's blocks arrive: engines publish
# them with each step, and the index reads them often.
_GRACE_S = 1.0


class Exchange:
    """A request and the worker that the decision chose for it; its body is not kept."""

    def __init__(self, fleet: Fleet, decision: Decision, worker: Worker) -> None:
        self.worker = worker
        self._fleet = fleet
        prepared = decision.prepared
        self._is_prompt = prepared.how != NO_PROMPT
        self._start_s = time.perf_counter()
        self._ranked = decision.workers[0]
        self._is_planned = prepared.plan is not None
        self._new_tokens = decision.new_tokens
        self._prompt_tokens = prepared.plan.tokens if prepared.plan else self._new_tokens
        self._blocks = prepared.unheld_blocks(self._ranked)
        self._unnamed = prepared.unnamed
        self.facts: dict[str, Any] = {
            "worker": worker.url,
            "how": prepared.how,
            **({"reason": prepared.reason} if prepared.reason else {}),
            "prompt_tokens": prepared.plan.tokens if prepared.plan else None,
            "matched_tokens": self._ranked.matched_tokens,
        }
        """What the access log tells of the route."""
        if self._is_prompt:
            worker.last_how = prepared.how

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Count the request as computed until its response begins; `end` ends it, or a failure."""
        self._fleet.note_choice(self.worker)
        new_part = self._new_tokens / max(1, self._prompt_tokens)
        in_progress = metrics.labelled(metrics.GATEWAY_REQUESTS, self.worker.url)
        in_progress.inc()
        try:
            with self.worker.computing(
                self._new_tokens, self._blocks, self._unnamed, new_part=new_part
            ) as self._blocks:
                yield
        except BaseException:
            in_progress.dec()
            raise

    def header(self) -> bytes:
        """Return the header that tells the client of the route."""
        facts = {
            name: value
            for name, value in self.facts.items()
            if value is not None and name != "reason"  # which need not fit into a header
        }
        return "; ".join(f"{name}={value}" for name, value in facts.items()).encode()

    def answer(self, status: int) -> None:
        """Note that the worker responds."""
        self.worker.succeed()
        if self._is_prompt:
            seconds = time.perf_counter() - self._start_s
            metrics.labelled(metrics.GATEWAY_FIRST_BYTE_SECONDS, self.worker.url).observe(seconds)
        if status < 400:
            self._fleet.note_answer(self.worker, self._new_tokens, self._prompt_tokens)
        if self._is_planned:
            url, ranked = self.worker.url, self._ranked
            metrics.labelled(metrics.GATEWAY_TOKENS, url, "yes").inc(ranked.matched_tokens)
            metrics.labelled(metrics.GATEWAY_TOKENS, url, "expected").inc(ranked.expected_tokens)
            metrics.labelled(metrics.GATEWAY_TOKENS, url, "no").inc(self._new_tokens)

    def moved_to(self, worker: Worker) -> "Exchange":
        """End the request here, and return it with another worker, which has begun to respond."""
        self.end(is_computed=False, is_complete=False)
        moved = copy(self)
        moved.worker = worker
        with moved.computing():
            return moved

    def end(self, *, is_computed: bool, is_complete: bool) -> None:
        """End the request; the blocks of a complete one count until their events have arrived.

        Those without a name count if the prompt was computed: a request that was refused, or left
        before, may not have been.
        """
        metrics.labelled(metrics.GATEWAY_REQUESTS, self.worker.url).dec()
        if is_computed:
            self.worker.sent.add(self._unnamed, self._fleet.cached_tokens_each)
        self.worker.end(self._unnamed)
        if is_complete and self._blocks:
            loop = asyncio.get_running_loop()
            loop.call_later(_GRACE_S, self._fleet.note_stored, self.worker, self._blocks)
        else:
            self.worker.expected.remove(self._blocks)
