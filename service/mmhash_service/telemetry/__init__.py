"""Metrics, spans and the ids of requests."""

ROUTE = "mmhash.route"
"""The key of an ASGI scope under which the access log finds a request's worker."""
