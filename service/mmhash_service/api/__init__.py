"""The public face of the HTTP API: schemas, the OpenAPI page, problems, headers."""
