"""Brokers with links, security or the data of a release."""
