"""``ringfence send``: publish JSON lines."""
