"""Handlers to begin from."""
