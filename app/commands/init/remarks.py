"""Settings of another broker without a counterpart, each with the reason or an alternative. Pure."""

import re
from collections.abc import Iterator
from typing import Final

_REASONS: Final = tuple(
    (re.compile(pattern), reason)
    for pattern, reason in (
        (r"user|password|cluster-(user|password)", "no password is copied; set sasl_username and sasl_password_env of the cluster"),
        (r"(.*-)?expiry.*|.*-expired?-.*", "messages do not expire; retention.ms of a topic deletes by age"),
        (r"(page|max-size|max-read|address-full|management|low-).*|.*-memory.*", "retention.bytes of a topic bounds its size"),
        (r".*last-value.*|.*-non-destructive", "a topic that is compacted is refused as an input"),
        (r"slow-consumer.*", "ringfence status names consumers that are slow or hang"),
        (r"auto-.*|default-(address|queue)-.*|.*delete-.*", "ringfence topics create creates the topics of the file"),
        (r"redistribution-.*|default-(consumer|purge|group|exclusive|ring|delay).*|send-to-dla.*", "consumers of a group share the partitions"),
        (r"(retry|reconnect|failover|call|check|connection|client|producer|initial|notification|pre-|min-large).*|ha|concurrency",
         "a bridge reconnects and retries by itself"),
        (r"confirmation-window-size", "window counts offsets, not bytes; its default fits the target"),
        (r"transformer.*|routing-type", "a handler that sends changes messages (docs/consume.md)"),
        (r"diverts?", "a handler that sends copies messages (docs/consume.md)"),
        (r"security.*|acceptors?|role.*", "Kafka has listeners and ACLs of its own (docs/security.md)"),
        (r"journal.*|.*-directory|.*large-message.*|persistence.*|global-max.*|max-disk.*|disk-.*|paging.*|bindings.*|critical-.*",
         "Kafka's brokers keep the messages"),
        (r"ha-policy|backup.*|shared-store|.*replicat.*|broker-connections|federations", "Kafka replicates topics (replication_factor)"),
        (r"(broadcast|discovery)-group.*", "bootstrap_servers names the brokers"),
        (r"include", "a file that is included is not read; put its elements in its place"),
        (r"grouping-handler.*", "the record key, or group_header, names the group"),
    )
)  # fmt: skip
_NOWHERE: Final = "nothing here does this"


class Remarks:
    """Settings grouped by reason."""

    def __init__(self) -> None:
        self._by_reason: dict[str, dict[str, None]] = {}

    def add(self, setting: str, reason: str) -> None:
        """Record a setting. An empty reason is looked up by its first word."""
        name = setting.split(maxsplit=1)[0] if setting else ""
        known = (text for pattern, text in _REASONS if pattern.fullmatch(name))
        self._by_reason.setdefault(reason or next(known, _NOWHERE), {})[setting] = None

    def lines(self) -> Iterator[str]:
        """Yield a line for each reason."""
        for reason, settings in self._by_reason.items():
            yield f"{', '.join(settings)}: {reason}"
