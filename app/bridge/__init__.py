"""``ringfence bridge``: a process of bridges, and its pages."""
