"""The embedded broker: a real Apache Kafka for the demo, the tests and first steps."""
