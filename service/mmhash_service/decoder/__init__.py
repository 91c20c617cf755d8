"""Decodes untrusted images in processes with limits on time and memory."""
