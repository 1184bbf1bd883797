"""Questions and changes that concern topics and brokers."""
