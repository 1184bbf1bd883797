"""The progress record of a consumer group in one partition, and its lease."""
