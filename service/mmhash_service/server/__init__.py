"""Server processes: sockets, workers, the HTTP protocol, logs."""
