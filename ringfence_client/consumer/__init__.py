"""The consumer: membership, assigned partitions, fetch loop."""
