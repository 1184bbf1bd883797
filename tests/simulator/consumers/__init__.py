"""Worlds of group-ordered consumers: what happens in them, and what must hold."""
