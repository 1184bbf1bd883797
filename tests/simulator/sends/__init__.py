"""Consumers whose handlers send records and keep a state of each group."""
