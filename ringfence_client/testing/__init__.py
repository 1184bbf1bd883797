"""Runs a handler in memory, as a consumer would: attempts, sends, state, failures, another process. For tests of handlers.

Nothing connects. Only the cluster and the delays between attempts are replaced; all else is what the consumer itself runs.
"""

from ringfence_client.testing.async_bench import AsyncHandlerBench
from ringfence_client.testing.bench import HandlerBench
from ringfence_client.testing.messages import message
from ringfence_client.testing.results import DeadLetterRecord, HandlerRun, SentRecord

__all__ = [
    "AsyncHandlerBench",
    "DeadLetterRecord",
    "HandlerBench",
    "HandlerRun",
    "SentRecord",
    "message",
]
