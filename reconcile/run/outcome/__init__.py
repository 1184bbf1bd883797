"""What a run leaves: results, report, and the state for the next run."""
