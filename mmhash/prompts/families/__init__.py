"""Model families: one module each, chosen by a model's config."""
