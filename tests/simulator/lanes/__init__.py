"""Worlds of lanes: what happens in them, and what must hold."""
