"""Web servers: sockets, authentication, and errors of a probe."""
