"""The ASGI applications, their middleware, and problems as responses."""
