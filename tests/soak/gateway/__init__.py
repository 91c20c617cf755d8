"""A soak of the gateway: load, and faults of the workers, their events and Redis."""
