"""Every engine's own spelling of a key: the only rooms that know an engine."""
