"""Request bodies: read as they arrive, bounded, and parsed as JSON."""
