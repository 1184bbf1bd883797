"""A lane: one partition of an address, from its opening to its close."""
