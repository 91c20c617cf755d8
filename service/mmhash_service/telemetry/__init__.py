"""State of a running service: request context, capacity, threads, metrics, spans, self-test."""
