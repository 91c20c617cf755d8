"""The catalogue of problems, and the exception that names one."""
