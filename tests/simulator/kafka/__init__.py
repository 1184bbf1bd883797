"""A simulated Kafka cluster and the network before it."""
