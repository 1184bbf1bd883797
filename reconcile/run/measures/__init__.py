"""Counts and distances that a run measures."""
