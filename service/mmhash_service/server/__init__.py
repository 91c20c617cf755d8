"""Server processes: sockets, supervisor, the HTTP protocol, logs."""
