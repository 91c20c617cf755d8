"""`/annotate`: an engine's request with the hashes of its media, from its text to its new text."""
