"""All questions, one after another: `make bench`."""

from bench import cpu
from bench.measure import report

report("cpu", cpu.rows())
