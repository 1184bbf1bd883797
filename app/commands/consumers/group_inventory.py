"""Counts unfinished messages of a consumer group: its lag, open dead letters and parked groups."""

from collections.abc import Sequence
from dataclasses import dataclass

from aiokafka.errors import KafkaError

from app.commands.consumers import leases
from app.commands.groups.lease_holders import LeaseHolders
from app.commands.groups.open_letters import read_letters
from app.commands.repair.records import Refused, Selection
from ringfence_client.handlers import group_names
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.escaping import printable
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.wording import counted, first_of

SHOWN_MAX = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Unfinished messages of one consumer group at all configured addresses."""

    lag: int = 0
    dead_letters: int = 0
    """Number of open dead letters."""
    parked: frozenset[bytes | None] = frozenset()
    """Groups that wait behind their dead letters."""
    unread: Sequence[str] = ()
    """Topics that could not be read."""

    def __str__(self) -> str:
        names = sorted("(none)" if item is None else group_names.shown(item) for item in self.parked)
        shown = f" ({first_of([printable(name) for name in names], SHOWN_MAX)})" if names else ""
        text = (
            f"a lag of {self.lag:,} offsets, {counted(self.dead_letters, 'open dead letter')}, {counted(len(names), 'parked group')}"
            f"{shown}"
        )
        return (
            f"{text}; {', '.join(self.unread)} cannot be read, so there may be more" if self.unread else text
        )


async def read_inventory(settings: Settings, group: str) -> Inventory:
    """Count unfinished messages. Topics that cannot be read are listed instead."""
    try:
        rows = (await leases.read_leases(settings, group=group, partial=True)).rows
    except (KafkaError, RingfenceError, OSError, TimeoutError):
        return Inventory(unread=[wire_names.progress_topic(settings.app.id)])
    letters: list[bytes | None] = []
    parked: set[bytes | None] = set()
    unread = []
    consumed = {row.address for row in rows}
    for address in (address for address in settings.addresses if address.name in consumed):
        try:
            keys, waiting = await _letters(settings, address, group)
        except (KafkaError, RingfenceError, OSError, TimeoutError):
            unread.append(wire_names.dead_letter_topic(address.name))
        else:
            letters += keys
            parked |= waiting
    lag = sum(row.lag or 0 for row in rows)
    return Inventory(lag=lag, dead_letters=len(letters), parked=frozenset(parked), unread=unread)


async def _letters(
    settings: Settings, address: AddressSettings, group: str
) -> tuple[list[bytes | None], set[bytes | None]]:
    """Return the groups of open dead letters at one address, and those of them that wait."""
    keys: list[bytes | None] = []
    parked: set[bytes | None] = set()
    async with LeaseHolders(settings, address) as holders:
        blocked = await holders.blocked(group)

    def keep(letter: Refused) -> None:
        keys.append(letter.key)
        if letter.accepted is not None and letter.accepted[1:] in blocked:
            parked.add(letter.key)

    await read_letters(settings, address.name, Selection(consumer_group=group), keep)
    return keys, parked
