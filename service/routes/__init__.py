"""The calls that the service answers, a file a subject."""
