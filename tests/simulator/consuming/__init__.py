"""Group-ordered consumers in simulated worlds: the product's own GroupConsumer over a double of aiokafka's consumer."""
