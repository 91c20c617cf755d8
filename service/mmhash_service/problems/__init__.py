"""The problems that a response can name, and the exception that raises one."""
