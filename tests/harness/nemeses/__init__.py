"""Faults as objects: one concern a file. Tests strike with one; a longer run may strike with many."""
