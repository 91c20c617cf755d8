"""The fit of the traces: each published figure, within its tolerance."""

from dataclasses import replace

import pytest

from bench.trace.published import FIGURES, Figure
from bench.trace.records import Request
from bench.trace.workload import Workload, generate

_traces: dict[Workload, list[Request]] = {}


def _trace(workload: Workload) -> list[Request]:
    if workload not in _traces:
        _traces[workload] = generate(workload)
    return _traces[workload]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("figure", FIGURES, ids=lambda one: f"{one.workload.name}: {one.name}")
def test_a_trace_has_the_published_figure(figure: Figure, seed: int) -> None:
    value = figure.measure(_trace(replace(figure.workload, seed=seed)))
    assert value == pytest.approx(figure.published, rel=figure.tolerance)


def test_a_figure_of_other_content_is_not_the_published_one() -> None:
    few = _trace(replace(FIGURES[0].workload, images="screenshots"))
    assert FIGURES[0].measure(few) == 100.0
