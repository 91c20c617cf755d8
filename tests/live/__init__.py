"""Tests against running engines: unmodified vLLM and SGLang servers on the CPU, with tiny models.

`make live` builds one environment for each release in a cache outside the tree, starts the engines
and runs these tests. The models have random weights, so outputs mean nothing, but cache names do.
"""
