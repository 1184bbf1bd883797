"""The commands of the CLI, one folder for each noun."""
