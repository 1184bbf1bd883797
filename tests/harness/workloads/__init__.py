"""Traffic of producers while faults strike: plans that a seed reproduces, and the program that executes them."""
