"""An engine's request with the keys of its media put in; each module is a step of that."""
