"""Handlers: their messages, decisions, options and retries."""
