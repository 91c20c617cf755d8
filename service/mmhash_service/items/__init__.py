"""Items of a request: read from its body, a URL or the memory of this host, and hashed."""
