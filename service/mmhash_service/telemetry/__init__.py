"""Metrics, spans and the ids of requests."""
