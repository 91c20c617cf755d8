"""Compares mmhash with the routers that users would install instead, on the same workers."""
