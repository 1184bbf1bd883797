"""How a worker fetches: transport, buffers, intervals."""
