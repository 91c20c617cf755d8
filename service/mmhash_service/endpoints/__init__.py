"""The endpoints of the service, one module for each subject."""
