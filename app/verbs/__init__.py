"""What the verbs of the command line do, but for those that run for long."""
