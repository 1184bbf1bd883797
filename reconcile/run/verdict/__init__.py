"""The verdict of a run: every anomaly, by name."""
