"""Earlier runs, and the offset range of a run."""
