"""Verdict of a run: names every anomaly."""
