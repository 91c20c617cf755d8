"""Limits of a request and of the process: headers, JSON values, memory and threads."""
