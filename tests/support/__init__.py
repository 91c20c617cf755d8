"""Servers, caches, origins and stand-ins that tests start."""
