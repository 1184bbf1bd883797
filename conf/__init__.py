"""The default configuration file."""
