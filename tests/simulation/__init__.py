"""Lanes in a world that is simulated: virtual time, a seeded cluster, crashes at any await. What decides is the product's own code.

See docs/simulation.md.
"""
