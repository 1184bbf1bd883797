"""Both images and the compose file, run by a container engine: ``make containers``."""
