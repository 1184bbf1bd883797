"""The default configuration file, and the width of tables on a terminal."""
