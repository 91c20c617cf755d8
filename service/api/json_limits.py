"""Limits of JSON bodies, shared by the body readers, `/annotate` and the guard.

The guard imports this into the engine's process, so nothing else is imported here.
"""

# Long strings are cheap, numbers and names are not: to parse this many values the parser holds the
# GIL, and with it the event loop, for 5 ms.
MAX_VALUES = 150_000

# Levels of nesting that the guard searches.
MAX_DEPTH = 200
