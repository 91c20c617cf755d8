"""Reads files, images and safetensors for hashing, and formats file names for messages."""
