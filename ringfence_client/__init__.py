"""Public names: the group-ordered consumer of accepted topics; transactions and receipts for producers.

A producer needs none of the consumer's libraries, so the first use of a consumer's name loads them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from ringfence_client.handlers.envelope import Envelope, Part, envelope

if TYPE_CHECKING:
    from ringfence_client.consumer.consumer import GroupConsumer
    from ringfence_client.handlers.message import Message, PartNumber, Reject, Release, Retry
    from ringfence_client.handlers.options import ConsumerOptions
    from ringfence_client.receipts.outbox import Outbox
    from ringfence_client.receipts.receipt import OutboxError, Receipt, ReceiptTimeoutError, Verdict
else:
    _MODULES: Final = {
        "ConsumerOptions": "handlers.options",
        "GroupConsumer": "consumer.consumer",
        "Message": "handlers.message",
        "Outbox": "receipts.outbox",
        "OutboxError": "receipts.receipt",
        "PartNumber": "handlers.message",
        "Receipt": "receipts.receipt",
        "ReceiptTimeoutError": "receipts.receipt",
        "Reject": "handlers.message",
        "Release": "handlers.message",
        "Retry": "handlers.message",
        "Verdict": "receipts.receipt",
    }

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        return found


__all__ = [
    "ConsumerOptions",
    "Envelope",
    "GroupConsumer",
    "Message",
    "Outbox",
    "OutboxError",
    "Part",
    "PartNumber",
    "Receipt",
    "ReceiptTimeoutError",
    "Reject",
    "Release",
    "Retry",
    "Verdict",
    "envelope",
]
