"""Hands messages to handlers: groups in order, many groups at once."""
