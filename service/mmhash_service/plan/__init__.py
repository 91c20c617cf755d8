"""Plans of requests, and requests with the hashes of their media."""
