"""The answer to a sender, and the errors that take its place."""

from dataclasses import dataclass
from enum import StrEnum

from ringfence_kafka.errors import RingfenceError


class Verdict(StrEnum):
    """Verdict on a message. Later versions may have more: treat an unknown one as not accepted."""

    ACCEPTED = "ACCEPTED"
    DUPLICATE = "DUPLICATE"
    """Its ID was accepted before."""
    CONFLICT = "CONFLICT"
    """Its ID was accepted before, with another value."""
    UNCHECKED = "UNCHECKED"
    """Accepted without a check: it has no ID, or the address remembers no IDs."""
    QUARANTINED = "QUARANTINED"
    """Refused for good; :attr:`Receipt.reason` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The verdict on one message."""

    verdict: Verdict
    source: str
    """Place of the message in the input: ``<topic>/<partition>/<offset>``, the ``_RF_SOURCE`` of the accepted message."""
    original: str | None = None
    """Place of the accepted message, for a duplicate or a conflict. None = the ring has forgotten it."""
    original_time: int | None = None
    """Record timestamp of the original, in milliseconds since the epoch."""
    reason: str | None = None
    """Reason of the quarantine."""

    @property
    def accepted_source(self) -> str | None:
        """Place of the message that was accepted with this ID, by this call or an earlier one; None = unknown."""
        if self.verdict in {Verdict.ACCEPTED, Verdict.UNCHECKED}:
            return self.source
        return self.original


class OutboxError(RingfenceError):
    """A message is not sent, or that is unknown; the text says which."""


class ReceiptTimeoutError(OutboxError):
    """A message is sent, and its verdict did not come in time. A second call with the same ID asks again."""

    def __init__(self, source: str, timeout_s: float, *, has_id: bool) -> None:
        self.source = source
        again = (
            "call send again with the same ID: the message is not accepted twice, and the call has the answer"
            if has_id
            else "do not send it again: it has no ID, and would be accepted twice"
        )
        super().__init__(
            f"{source} is sent, and no lane has judged it within {timeout_s:g} s: {again}; 'ringfence status' shows whether workers run"
        )
