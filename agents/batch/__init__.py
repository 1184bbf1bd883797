"""Records as a lane receives them. Pure."""
