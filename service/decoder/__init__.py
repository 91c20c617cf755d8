"""Decoding of untrusted images in processes with limits on their time and their memory."""
