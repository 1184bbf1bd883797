"""Counts what is unfinished in a consumer group: its lag, open dead letters and parked groups."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from aiokafka.errors import KafkaError

from app.commands.consumers import leases
from app.commands.groups.lease_holders import LeaseHolders
from app.commands.repair.records import Refused, Selection, Wanted
from app.commands.repair.redrive_log import RedrivePartition
from app.commands.repair.scan import Act, opened, scan
from ringfence_client.handlers import group_names
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.escaping import printable
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.wording import counted, first_of

SHOWN_MAX = 5


@dataclass(slots=True)
class Inventory:
    """The unfinished messages of one consumer group at all configured addresses."""

    lag: int = 0
    dead_letters: int = 0
    """Open ones."""
    parked: set[bytes | None] = field(default_factory=set)
    """Groups that wait behind their dead letters."""
    unread: list[str] = field(default_factory=list)
    """Topics that could not be read."""

    def __str__(self) -> str:
        names = sorted("(none)" if item is None else group_names.shown(item) for item in self.parked)
        shown = first_of([printable(name) for name in names], SHOWN_MAX)
        text = (
            f"a lag of {self.lag:,} offsets, {counted(self.dead_letters, 'open dead letter')}, {counted(len(names), 'parked group')}"
            f"{f' ({shown})' if names else ''}"
        )
        return (
            f"{text}; {', '.join(self.unread)} cannot be read, so there may be more" if self.unread else text
        )


async def read(settings: Settings, group: str) -> Inventory:
    """Count what is unfinished. A topic that cannot be read is named instead."""
    found = Inventory()
    try:
        rows = (await leases.read(settings, group=group, partial=True)).rows
    except (KafkaError, RingfenceError, OSError, TimeoutError):
        found.unread.append(wire_names.progress_topic(settings.app.id))
        return found
    found.lag = sum(row.lag or 0 for row in rows)
    for address in settings.addresses:
        if address.name in {row.address for row in rows}:
            try:
                await _letters(settings, address, group, found)
            except (KafkaError, RingfenceError, OSError, TimeoutError):
                found.unread.append(wire_names.dead_letter_topic(address.name))
    return found


async def _letters(settings: Settings, address: AddressSettings, group: str, found: Inventory) -> None:
    """Add the dead letters at one address."""
    wanted = Wanted(Selection(consumer_group=group), lambda record: record.key)
    async with LeaseHolders(settings, address) as holders:
        blocked = await holders.blocked(group)

        async def count(_: RedrivePartition, letters: Sequence[Refused]) -> None:
            found.dead_letters += len(letters)
            found.parked |= {
                letter.key
                for letter in letters
                if letter.accepted is not None and letter.accepted[1:] in blocked
            }

        topic = wire_names.dead_letter_topic(address.name)
        async with opened(settings.kafka, settings.app.id, topic) as open_topic:
            await scan(open_topic, wanted, Act(count))
