"""Questions to the cluster before Spark reads, and why it does not answer."""
