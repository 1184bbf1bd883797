"""Problems of each address of a worker: known at its start, checked again at intervals, logged once."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

from agents.topic_checks.changelog import state_faults
from agents.topic_checks.topics import count_faults, missing_journal, missing_topics, topic_faults
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.topics import TopicDescription
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.protocol import wire_names
from tables.codec import Meta

log: Final = logging.getLogger("ringfence.worker")

Faults = Mapping[str, Sequence[str]]
"""Problems by address, one line each."""
EVERY: Final = "*"
"""Stands for all addresses. No address has that name."""


async def _none_denied() -> Faults:
    return {}


class AddressFaults:
    """Problems by address. A problem of one address does not stop the others."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        known: Faults | None = None,
        denied: Faults | None = None,
        ask_denied: Callable[[], Awaitable[Faults]] = _none_denied,
    ) -> None:
        """Create the record. ``known``: problems that are logged already; ``denied``: missing rights, which ``ask_denied`` queries again."""
        self._settings = settings
        self._cluster = cluster
        self.by_address: dict[str, Sequence[str]] = _faulty(known or {})
        """Addresses with problems, from the last query."""
        self.bytes_max: Mapping[str, int] = {}
        """``max.message.bytes`` of each topic, from the last query."""
        self.denied: Faults = _faulty(denied or {})
        """Missing rights among the problems, by address."""
        self._ask_denied = ask_denied

    async def check(self, metas: Mapping[str, Collection[Meta]]) -> Faults:
        """Query the cluster and log new problems. Return addresses whose lanes must stop, with the reasons.

        ``metas``: last meta records of open lanes, by address. Raises KafkaError if the cluster does not answer.
        """
        addresses, app_id = self._settings.addresses, self._settings.app.id
        journal = wire_names.journal_topic(app_id)
        described = await self._cluster.topics.describe(
            [journal, *(topic for address in addresses for topic in address.topics(app_id).values())]
        )
        existing = described.topics
        self.bytes_max = {name: topic.message_bytes_max for name, topic in existing.items()}
        counts = {name: topic.partitions for name, topic in existing.items()}
        wrong: dict[str, Sequence[str]] = {}
        found: dict[str, Sequence[str]] = {}
        for address in addresses:
            name, targets = address.name, self._settings.transaction_targets(address)
            wrong[name] = topic_faults(app_id, address, existing, targets) or count_faults(
                address, counts, metas.get(name, ()), targets
            )
            found[name] = [*missing_topics(app_id, address, described, targets), *wrong[name]]
        found |= await self._ask_again(
            [address for address in addresses if address.name in self.by_address and not found[address.name]],
            existing,
        )
        found[EVERY] = [] if journal in existing else [missing_journal(app_id)]
        self._say(found)
        self.by_address = _faulty(found)
        return _faulty(wrong)

    async def _ask_again(
        self, doubtful: Sequence[AddressSettings], existing: Mapping[str, TopicDescription]
    ) -> Faults:
        """Return problems that topic descriptions do not show, for addresses that had a problem."""
        if not doubtful:
            return {}
        found = await state_faults(self._cluster, self._settings, doubtful, existing)
        self.denied = _faulty(await self._ask_denied()) if self.denied else {}
        return {name: faults or self.denied.get(name, ()) for name, faults in found.items()}

    def _say(self, found: Faults) -> None:
        for name, faults in found.items():
            known = self.by_address.get(name, ())
            for fault in faults:
                if fault not in known:
                    say_fault(name, fault)
            if known and not faults:
                log.info("%s: the problem is solved, and it continues", shown(name))


def say_fault(name: str, fault: str) -> None:
    """Log a problem that stops an address."""
    log.error("%s: a problem stops it: %s", shown(name), fault)


def shown(name: str) -> str:
    """Return the name for a log line."""
    return "every address" if name == EVERY else f"address {name}"


def _faulty(found: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    return {name: faults for name, faults in found.items() if faults}
