"""Lanes and bridges: what happens to a record between the input topic and the output topics."""
