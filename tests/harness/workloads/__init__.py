"""What producers send while faults strike: plans that a seed reproduces, and the program that carries them out."""
