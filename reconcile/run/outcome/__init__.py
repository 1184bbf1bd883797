"""Output of a run: results, report, and the state for the next run."""
