"""The worker's membership in its consumer group, and its assigned lanes."""
