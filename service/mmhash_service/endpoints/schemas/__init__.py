"""Pydantic models of queries, JSON bodies and responses, by endpoint."""
