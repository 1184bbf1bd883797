"""ringfence status: what has stopped, and how everything else is."""
