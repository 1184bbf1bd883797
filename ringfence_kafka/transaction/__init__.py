"""How a transaction is written: as aiokafka does it, or in fewer requests where the broker offers it."""
