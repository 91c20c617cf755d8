"""Items of a request that are in JSON, at a URL or in the memory of this host."""
