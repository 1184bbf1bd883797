"""``ringfence consumers``: show and forget consumer groups."""
