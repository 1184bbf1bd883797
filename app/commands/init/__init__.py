"""``ringfence init``: a new configuration, for given topics or from that of another broker."""
