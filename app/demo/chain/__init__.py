"""The chain of the demo: orders → billing → ledger, two handlers with state that send."""
