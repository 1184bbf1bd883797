"""ringfence bridge: run bridges and show how far they are."""
