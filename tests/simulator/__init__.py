"""Lanes and consumers in simulated worlds: virtual time, a seeded cluster, crashes at any await, and the product's own code.

See tests/simulator/README.md.
"""
