"""Transactional and idempotent producers, and Kafka's two transaction protocols."""
