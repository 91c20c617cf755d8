"""State of a running service: request context, capacity, worker threads, metrics, tracing, self-test."""
