"""``ringfence rings``: show, find, clear, adopt and regroup."""
