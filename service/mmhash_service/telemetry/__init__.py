"""Metrics, spans and the ids of requests."""

ROUTE = "mmhash.route"
"""The member of an ASGI scope with what the access log tells of a request's worker."""
