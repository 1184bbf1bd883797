"""The frames of a run: inputs, outputs and what matches."""
