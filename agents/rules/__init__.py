"""Rules of lanes that all workers must agree on."""
