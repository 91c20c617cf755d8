"""Limits of requests and of the process: headers, JSON values, memory and threads."""
