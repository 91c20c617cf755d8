"""ASGI middleware of the service: access log, API keys, duplicate headers, metrics, spans."""
