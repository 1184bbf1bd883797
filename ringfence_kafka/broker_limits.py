"""Limits of the brokers that Ringfence depends on, and the advice where one is too tight. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # the settings import the errors, which take their advice from here
    from ringfence_kafka.config.settings import Settings

TRANSACTION_TIMEOUT_MS: Final = 60_000
"""After which the broker aborts a lane's transaction that nobody ends."""
BRIDGE_SESSION_TIMEOUT_MS: Final = 10_000
OFFSET_METADATA_BYTES: Final = 4_096
"""Largest metadata that a bridge commits beside an offset; Kafka's default limit."""

TRANSACTION_LIMIT: Final = "transaction.max.timeout.ms"
SESSION_MIN: Final = "group.min.session.timeout.ms"
SESSION_MAX: Final = "group.max.session.timeout.ms"
METADATA_LIMIT: Final = "offset.metadata.max.bytes"
GROUP_SIZE: Final = "group.max.size"
MESSAGE_SIZE: Final = "message.max.bytes"
"""``max.message.bytes`` of topics that are created without it."""

SETTINGS: Final = (TRANSACTION_LIMIT, SESSION_MIN, SESSION_MAX, METADATA_LIMIT)
"""Names of the broker settings that :func:`faults` compares."""

ADVICE: Final[Mapping[str, str]] = {
    "InvalidTransactionTimeout": f"the brokers' {TRANSACTION_LIMIT} is too small: set it to {TRANSACTION_TIMEOUT_MS} or more on all brokers "
    "and restart them; until then nothing is processed",
    "InvalidSessionTimeoutError": f"the brokers' {SESSION_MIN} or {SESSION_MAX} excludes this session time-out: change app.session_timeout "
    "(bridges use 10 s), or the setting of the brokers; until then nothing is read",
    "OffsetMetadataTooLargeError": f"the brokers' {METADATA_LIMIT} is too small for a bridge: set it to {OFFSET_METADATA_BYTES} or more; until "
    "then the bridge forwards nothing",
}
"""By the class of a broker's refusal: its cause, the remedy, and the consequence for messages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Need:
    """A value that a broker setting must allow."""

    setting: str
    value: int
    is_minimum: bool
    """Whether the setting is a lower limit of what clients ask for; otherwise it is an upper limit."""
    user: str
    consequence: str

    def fault(self, limit: int) -> str | None:
        if (limit <= self.value) if self.is_minimum else (limit >= self.value):
            return None
        bound = "at most" if self.is_minimum else "at least"
        return f"the brokers' {self.setting} is {limit}, and {self.user} {bound} {self.value}: {self.consequence}; change it on all brokers"


def faults(settings: "Settings", brokers: Mapping[str, int]) -> list[str]:
    """Return a line for each broker setting that keeps a part of this configuration from its work.

    Args:
        settings: the configuration.
        brokers: what the brokers are set to, by name of :data:`SETTINGS`; a missing name is not compared.
    """
    needs = _needs(settings)
    found = (need.fault(brokers[need.setting]) for need in needs if need.setting in brokers)
    return [fault for fault in found if fault]


def _needs(settings: "Settings") -> list[_Need]:
    needs = []
    if settings.addresses:
        needs.append(
            _Need(
                setting=TRANSACTION_LIMIT, value=TRANSACTION_TIMEOUT_MS, is_minimum=False,
                user="lanes need", consequence="no lane opens",
            )
        )  # fmt: skip
        needs += _session(settings.app.session_timeout * 1000, "workers need", "no worker joins its group")
    if settings.bridges or settings.cluster_connections:
        needs += _session(BRIDGE_SESSION_TIMEOUT_MS, "bridges need", "no bridge joins its group")
        needs.append(
            _Need(
                setting=METADATA_LIMIT, value=OFFSET_METADATA_BYTES, is_minimum=False,
                user="bridges need", consequence="bridges cannot commit their offsets and forward nothing",
            )
        )  # fmt: skip
    return needs


def _session(timeout_ms: int, user: str, consequence: str) -> list[_Need]:
    return [
        _Need(setting=name, value=timeout_ms, is_minimum=is_minimum, user=user, consequence=consequence)
        for name, is_minimum in ((SESSION_MIN, True), (SESSION_MAX, False))
    ]
