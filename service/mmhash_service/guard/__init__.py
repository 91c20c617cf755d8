"""ASGI middleware for engines: a caller's hash reaches the engine only with a valid tag."""

from typing import TYPE_CHECKING, Any

from mmhash.extras import needs_extra

with needs_extra("service"):
    import starlette  # noqa: F401  (the package alone: Guard needs more of it)

if TYPE_CHECKING:
    from mmhash_service.guard.middleware import Guard as Guard

__all__ = ["Guard"]


def __getattr__(name: str) -> Any:
    if name != "Guard":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Import the guard on first use, because it imports the engines.
    with needs_extra("service"):
        from mmhash_service.guard.middleware import Guard  # noqa: PLC0415
    return Guard
