"""Data frames of a run: inputs, outputs and their matches."""
