"""The demo: real traffic, a killed worker, and a check that imports nothing of Ringfence."""
