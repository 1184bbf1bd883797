"""What is measured; each runs as a process of its own."""
