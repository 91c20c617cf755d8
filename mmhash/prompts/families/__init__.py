"""Model families: one module for each, chosen by the model's config.json."""
