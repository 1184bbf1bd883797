"""Records and batches as unusual clients write them."""
