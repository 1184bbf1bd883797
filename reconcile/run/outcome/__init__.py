"""Output of a run: results, report, and state for the next run."""
