"""A run's knowledge of earlier runs, and the offset range that it covers."""
