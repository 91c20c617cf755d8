"""Items of a request that are in JSON, at a URL or in shared memory."""
