"""``ringfence init``: a new configuration, for given topics or imported from another broker."""
