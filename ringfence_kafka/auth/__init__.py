"""Authentication and encryption of connections to brokers, and errors about access."""
