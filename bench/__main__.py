"""The benchmarks that need only a CPU and no server: `make bench`."""

from bench import cpu, engines
from bench.support.measure import report

report("cpu", cpu.rows())
report("engines", engines.rows())
