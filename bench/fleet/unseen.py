"""Traces that had no part in choosing the policy's constants: other rates, sizes, fleets, mixes."""

from dataclasses import replace
from typing import NamedTuple

from bench.fleet.traces import TRACES, LiveTrace
from bench.trace.records import Request
from bench.trace.workload import renamed


class MixedTrace(NamedTuple):
    """Several traces of different clients at the same time."""

    name: str
    traces: tuple[LiveTrace, ...]

    def with_seed(self, seed: int) -> "MixedTrace":
        """Return the same workloads, drawn with another seed."""
        return self._replace(traces=tuple(one.with_seed(seed) for one in self.traces))

    def requests(self) -> list[Request]:
        """Return the requests of all traces, in the order of their arrival."""
        merged = [
            replace(
                one,
                session=f"{trace.name} {one.session}",
                tenant=one.tenant and f"{trace.name} {one.tenant}",
            )
            for trace in self.traces
            for one in renamed(trace.requests(), f"{trace.name} ")
        ]
        return sorted(merged, key=lambda one: one.at)


def _named(name: str, trace: LiveTrace) -> LiveTrace:
    return trace._replace(workload=replace(trace.workload, name=name))


_AGENTS, _CHATS, _SERVEGEN = TRACES["agents"], TRACES["visionarena"], TRACES["servegen"]
_DOCUMENTS = TRACES["documents"]

UNSEEN: list[tuple[LiveTrace | MixedTrace, int]] = [
    (_named("servegen, 2.5 times the rate", _SERVEGEN.grown(4, rate=2.5)), 8),
    (_named("servegen, 4 times the rate", _SERVEGEN.grown(4, rate=4)), 8),
    (_named("visionarena, twice the rate", _CHATS.grown(4, rate=2)), 8),
    (_named("visionarena", _CHATS.grown(16)), 32),
    (_named("chats of 4 to 12 turns", _CHATS.grown(4, turns=(4, 12), pause_s=4.0)), 8),
    (_named("documents, 2.5 times the rate", _DOCUMENTS.grown(4, rate=2.5)), 8),
    (_named("agents", _AGENTS.grown(2)), 4),
    (_named("agents, half the rate", _AGENTS.grown(4, rate=0.5)), 8),
    (_named("agents, 12 system prompts", _AGENTS.grown(4, clients=12)), 8),
    (_named("agents, no system prompt", _AGENTS.grown(4, system=0)), 8),
    (_named("agents, 3 screenshots at most", _AGENTS.grown(2, window=3)), 4),
    (_named("agents", _AGENTS.grown(16)), 32),
    (MixedTrace("agents, chats, servegen", tuple(
        one.grown(2) for one in (_AGENTS, _CHATS, _SERVEGEN)
    )), 8),
    (MixedTrace("agents, documents, servegen", (
        _AGENTS, _DOCUMENTS.grown(2), _SERVEGEN.grown(2)
    )), 4),
]  # fmt: skip
