"""``ringfence plan``: resources for a load."""
