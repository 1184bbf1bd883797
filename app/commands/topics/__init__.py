"""``ringfence topics``: create, check and grow topics."""
