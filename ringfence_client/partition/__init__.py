"""Held partitions: acquisition of the lease, progress writes, dead letters, parked records."""
