"""The endpoint picker: the gateway's choice of a worker, for an Envoy that forwards requests."""
