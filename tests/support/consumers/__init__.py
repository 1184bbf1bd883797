"""Consumers under test: processes, tasks, handlers and leases."""
