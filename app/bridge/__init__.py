"""``ringfence bridge``: a process with bridges, its probes and metrics."""
