"""The configuration file that all programs read: its schema, and how it is read."""
