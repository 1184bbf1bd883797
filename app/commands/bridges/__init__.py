"""``ringfence bridge``: run bridges and show their progress."""
