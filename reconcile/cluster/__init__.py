"""Questions to the cluster before Spark reads, and reasons why it does not answer."""
