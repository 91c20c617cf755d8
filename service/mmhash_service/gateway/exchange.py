"""Keep a worker's counts current while it computes a request, answers it, and ends it.

The gateway's proxy and the picker share this class. The proxy sends the request itself, and the
picker learns from Envoy what became of it.
"""

import asyncio
from copy import copy
from typing import Any, Self

from mmhash_service.gateway.fleet import Fleet
from mmhash_service.gateway.router import NO_PROMPT, Decision
from mmhash_service.gateway.worker import Worker
from mmhash_service.telemetry import metrics

# The events for a prompt's blocks arrive within this many seconds of the response. Engines publish
# events at every step, and the index reads them often.
_GRACE_S = 1.0


class Exchange:
    """A request and its chosen worker, without the body.

    Inside `with exchange:` the request counts as being computed. An exception there ends it.
    """

    def __init__(self, fleet: Fleet, decision: Decision, worker: Worker) -> None:
        self.worker = worker
        self._fleet = fleet
        prepared = decision.prepared
        self._ranked = decision.workers[0]
        self._is_planned = prepared.plan is not None
        self._new_tokens = decision.new_tokens
        self._prompt_tokens = prepared.plan.tokens if prepared.plan else self._new_tokens
        self._new_part = self._new_tokens / max(1, self._prompt_tokens)
        self._blocks = prepared.unheld_blocks(self._ranked)
        self._unnamed = prepared.unnamed
        self.facts: dict[str, Any] = {
            "worker": worker.url,
            "how": prepared.how,
            **({"reason": prepared.reason} if prepared.reason else {}),
            "prompt_tokens": prepared.plan.tokens if prepared.plan else None,
            "matched_tokens": self._ranked.matched_tokens,
        }
        """The fields of the route in the access log."""
        if prepared.how != NO_PROMPT:
            worker.last_how = prepared.how

    def __enter__(self) -> Self:
        self._fleet.note_choice(self.worker)
        metrics.labelled(metrics.GATEWAY_REQUESTS, self.worker.url).inc()
        self._blocks = self.worker.begin(
            self._new_tokens, self._blocks, self._unnamed, new_part=self._new_part
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.worker.begin_response(self._new_tokens, new_part=self._new_part)
        if kind is not None:
            self.end(is_computed=False, is_complete=False)

    def header(self) -> bytes:
        """Return the header that describes the route to the client."""
        facts = {
            name: value
            for name, value in self.facts.items()
            if value is not None and name != "reason"  # the reason may be too long for a header
        }
        return "; ".join(f"{name}={value}" for name, value in facts.items()).encode()

    def answer(self, status: int) -> None:
        """Note that the worker responds."""
        self.worker.succeed()
        url = self.worker.url
        if status < 400:
            self._fleet.note_answer(self.worker, self._new_tokens, self._prompt_tokens)
        if self._is_planned:
            counter, ranked = metrics.GATEWAY_TOKENS, self._ranked
            metrics.labelled(counter, url, "yes").inc(ranked.matched_tokens)
            metrics.labelled(counter, url, "expected").inc(ranked.expected_tokens)
            metrics.labelled(counter, url, "no").inc(self._new_tokens)

    def moved_to(self, worker: Worker) -> "Exchange":
        """Move the request to another worker, which has begun to respond."""
        self.end(is_computed=False, is_complete=False)
        moved = copy(self)
        moved.worker = worker
        with moved:
            return moved

    def end(self, *, is_computed: bool, is_complete: bool) -> None:
        """End the request. A complete request's blocks count until their events have arrived.

        Blocks without names count only if the prompt was computed: the engine may have refused the
        request, or the client may have abandoned it.
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
