"""Programs under measurement; each runs as a process of its own."""
