"""Configuration file of all programs: its schema, and its reading."""
