"""What anyone may read: wire vocabulary, settings, errors. Imports nothing of the rest."""
