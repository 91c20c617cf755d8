"""Comparison of prompt plans with transformers' own processors: `make oracle`."""
