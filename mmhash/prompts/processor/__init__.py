"""A model's own processor, asked in a helper process, which alone imports transformers."""
