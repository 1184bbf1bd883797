"""The worker's place in its consumer group, and the lanes that it is assigned."""
