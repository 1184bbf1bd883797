"""Records and batches that unusual clients write."""
