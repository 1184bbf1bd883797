"""What goes wrong: each nemesis strikes real processes, a real broker, real files, and heals what it struck."""
