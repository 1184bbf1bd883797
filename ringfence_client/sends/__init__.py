"""Sends of handlers, and the states of their groups, written with the acknowledgement."""
