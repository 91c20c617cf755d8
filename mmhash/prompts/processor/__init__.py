"""Ask a model's own processor, in a helper process: only that process imports transformers."""
