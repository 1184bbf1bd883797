"""Queries and changes of topics, groups and brokers."""
