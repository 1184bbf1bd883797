"""Rounds of faults on real processes, and the checker that judges them."""
