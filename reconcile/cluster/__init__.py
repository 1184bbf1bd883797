"""What the cluster is asked before Spark reads, and why it does not answer."""
