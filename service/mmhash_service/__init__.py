"""The HTTP front end of mmhash: digests and keys for clients that do not call the library."""
