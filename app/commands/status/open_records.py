"""Records that wait for an operator: dead letters, and quarantined records of addresses and bridges."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from app.bridge.quarantines import BridgeQuarantines
from app.commands.status.model import LeftLetters, Status
from ringfence_client.progress.open_records import Found, OpenRecordCounts
from ringfence_client.progress.progress_record import Progress
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.chains import chain_starts
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.protocol import wire_names


class Counts:
    """Counts of open records, kept between looks."""

    def __init__(self, settings: Settings) -> None:
        """Start without counts."""
        self.addresses = OpenRecordCounts(settings.kafka)
        self.bridges = BridgeQuarantines()


async def read_open_records(
    settings: Settings,
    cluster: Cluster,
    counts: OpenRecordCounts,
    settled: Mapping[tuple[str, int], Progress] | None,
) -> Found:
    """Return the open records of all addresses; empty if the ``settled`` records are unknown."""
    if settled is None:
        return Found({}, {})

    async def settled_of(topic: str, partition: int) -> Progress | None:
        return settled.get((topic, partition))

    topics = {
        topic
        for address in settings.addresses
        for topic in (address.quarantine_topic, wire_names.dead_letter_topic(address.name))
    }
    return await counts.refresh(cluster, sorted(topics), settled_of)


def placed(settings: Settings, status: Status, found: Found, ignored: Collection[str]) -> Status:
    """Add the open records to addresses and consumer groups of the status."""
    starts = chain_starts(settings.addresses)
    quarantines = {address.name: address.quarantine_topic for address in settings.addresses}
    letters = {
        (address.name, group): records
        for address in settings.addresses
        for (topic, group), records in found.records.items()
        if topic == wire_names.dead_letter_topic(address.name) and group not in ignored
    }
    known = {(consumers.address, consumers.consumer_group) for consumers in status.consumers}
    return replace(
        status,
        addresses=[
            replace(
                address,
                quarantine=found.records.get((quarantines[address.address], "")),
                chain_start=starts.get(address.address, ""),
            )
            for address in status.addresses
        ],
        consumers=[
            replace(consumers, dead_letters=letters.get((consumers.address, consumers.consumer_group)))
            for consumers in status.consumers
        ],
        left_letters=[
            LeftLetters(group, address, records)
            for (address, group), records in sorted(letters.items(), key=lambda item: item[0])
            if (address, group) not in known
        ],
    )
