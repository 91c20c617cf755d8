"""Matplotlib as the benchmarks use it: SVG files that change only with their figures."""

from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

from bench.support.measure import RESULTS

__all__ = ["plt", "save"]

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "mmhash"  # otherwise the ids in a file are random


def save(figure: Any, name: str) -> None:
    """Write a figure to bench/results/<name>.svg, without the date of the run."""
    figure.tight_layout()
    figure.savefig(RESULTS / f"{name}.svg", metadata={"Date": None})
