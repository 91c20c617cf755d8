"""Files, images and safetensors, read for hashing."""
