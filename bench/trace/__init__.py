"""Traces of image requests, fitted to published figures of real services."""
