"""Files, images and safetensors read for hashing, and file names in messages."""
