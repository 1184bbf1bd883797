"""Simulated worlds of lanes and consumers, and the simulator itself."""
