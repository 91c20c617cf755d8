"""The routers that users would install instead, in front of the same workers."""
