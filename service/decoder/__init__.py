"""Untrusted files decoded in separate processes, each with a limit on its time and its memory."""
