"""Benchmarks against other implementations, measured in the same run."""
