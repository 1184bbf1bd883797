"""ringfence rings: show, find, clear and adopt."""
