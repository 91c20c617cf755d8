"""Decodes untrusted images and media in processes with limits on time and memory."""
