"""Pages as browsers read them."""
