"""Scripts that the simulated cluster and a real broker must answer alike."""
