"""Decoding of untrusted images and media in processes with limits on their time and memory."""
