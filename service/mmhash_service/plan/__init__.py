"""`POST /plan`: a prompt as an engine will see it."""
