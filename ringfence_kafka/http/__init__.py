"""Web servers: sockets, authentication, and errors of probes."""
