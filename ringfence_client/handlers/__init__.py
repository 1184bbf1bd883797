"""Handlers: what they get, what they return, and when they are tried again."""
