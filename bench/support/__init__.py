"""The code that benchmarks share: timing, result files, plots, servers, load, other code."""
