"""Request bodies: read as they arrive, bounded, parsed into items."""
