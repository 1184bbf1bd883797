"""Runs a handler in memory as a consumer would: attempts, sends, state, failures, handovers. For tests of handlers.

Nothing connects. Only the cluster and the delays between attempts are replaced; the rest is the consumer's own code.
"""

from ringfence_client.testing.async_bench import AsyncHandlerBench
from ringfence_client.testing.bench import HandlerBench
from ringfence_client.testing.messages import DeadLetterRecord, HandlerRun, SentRecord, message

__all__ = [
    "AsyncHandlerBench",
    "DeadLetterRecord",
    "HandlerBench",
    "HandlerRun",
    "SentRecord",
    "message",
]
