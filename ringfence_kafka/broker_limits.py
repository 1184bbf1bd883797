"""Broker limits that Ringfence depends on, and the advice if one is too tight. Pure."""

from collections.abc import Mapping
from typing import Final

TRANSACTION_TIMEOUT_MS: Final = 60_000
"""Time after which the broker aborts an open transaction of a lane, in ms."""
BRIDGE_SESSION_TIMEOUT_MS: Final = 10_000
OFFSET_METADATA_BYTES: Final = 4_096
"""Maximum size of the metadata that a bridge commits with an offset, in bytes; Kafka's default limit."""

TRANSACTION_LIMIT: Final = "transaction.max.timeout.ms"
SESSION_MIN: Final = "group.min.session.timeout.ms"
SESSION_MAX: Final = "group.max.session.timeout.ms"
METADATA_LIMIT: Final = "offset.metadata.max.bytes"
MESSAGE_SIZE: Final = "message.max.bytes"
"""Default of ``max.message.bytes`` for new topics."""

ADVICE: Final[Mapping[str, str]] = {
    "InvalidTransactionTimeout": f"the brokers' {TRANSACTION_LIMIT} is too small: set it to {TRANSACTION_TIMEOUT_MS} or more on all brokers "
    "and restart them; until then nothing is processed",
    "InvalidSessionTimeoutError": f"the brokers' {SESSION_MIN} or {SESSION_MAX} excludes this session time-out: change app.session_timeout "
    "(bridges use 10 s), or the setting of the brokers; until then nothing is read",
    "OffsetMetadataTooLargeError": f"the brokers' {METADATA_LIMIT} is too small for a bridge: set it to {OFFSET_METADATA_BYTES} or more; until "
    "then the bridge forwards nothing",
}
"""Cause, remedy and consequence for messages, by the class of a broker's error."""
