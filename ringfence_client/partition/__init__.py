"""A partition that a consumer holds: opening, progress writes, dead letters."""
