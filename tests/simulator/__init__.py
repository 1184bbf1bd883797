"""Lanes and consumers in simulated worlds (README.md): virtual time, a seeded cluster, crashes at any await, the product's own code."""
