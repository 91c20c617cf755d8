"""The HTTP front end of mmhash: digests and keys for whoever cannot call the library."""
