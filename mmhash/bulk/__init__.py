"""Keys of very many files or rows: by several processes, and kept so that a kill loses little."""
