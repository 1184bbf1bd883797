"""The chain of the demo: orders → billing → ledger, two handlers with state that send."""

from app.demo.chain.consumers import ADDRESSES, Chain

__all__ = ["ADDRESSES", "Chain"]
