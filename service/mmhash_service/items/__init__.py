"""Items of a request: read from its body, a URL or this host's memory, and hashed."""
