"""State of a running service: request context, limits, worker threads, metrics, self-test."""
