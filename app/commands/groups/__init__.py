"""``ringfence groups``: show, purge and skip message groups."""
