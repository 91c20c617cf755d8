"""The models of JSON bodies and responses, by endpoint."""
