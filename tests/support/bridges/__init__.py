"""Bridges on real brokers and in models."""
