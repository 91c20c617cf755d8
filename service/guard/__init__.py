"""ASGI middleware for engines: a caller's hash reaches the engine only with a valid tag."""

from mmhash.extras import needs_extra

with needs_extra("service"):
    from mmhash_service.guard.middleware import Guard

__all__ = ["Guard"]
