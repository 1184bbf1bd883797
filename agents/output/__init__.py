"""Builds the record batches of a lane's transaction."""
