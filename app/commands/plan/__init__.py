"""ringfence plan: what a load needs."""
