"""Fetching of URLs: allowlist, address checks, and limits on the content."""
