"""Deliberate bugs in the product, each caught by a named test: ``python -m tests.mutants``."""
