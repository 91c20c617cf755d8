"""All questions, one after another: `make bench`."""

from bench import cpu, engines
from bench.measure import report

report("cpu", cpu.rows())
report("engines", engines.rows())
