"""Open dead letters for the worker's page."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from app.commands.repair.records import Refused, Selection, Wanted
from app.commands.repair.redrive_log import RedrivePartition
from app.commands.repair.scan import Act, opened, scan
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.protocol import wire_names

SHOWN_MAX: Final = 200


async def read_open(settings: Settings, address: str, consumer_group: str) -> list[Refused]:
    """Return the oldest open dead letters of a consumer group, without values.

    Raises:
        BrokerUnavailableError: The cluster does not answer, or denies access.
    """
    found = await _read(settings, address, _wanted(Selection(consumer_group=consumer_group)))
    return sorted(found, key=lambda letter: (letter.timestamp, letter.place))


async def read_one(
    settings: Settings, address: str, consumer_group: str, at: tuple[int, int]
) -> Refused | None:
    """Return one dead letter, open or settled; None = it does not exist. Raises as :func:`read_open`."""
    wanted = _wanted(Selection(consumer_group=consumer_group, at=[at]), settled_too=True)
    return next(iter(await _read(settings, address, wanted, whole=settings.app.page_values)), None)


def _wanted(selection: Selection, *, settled_too: bool = False) -> Wanted:
    return Wanted(selection, lambda record: record.key, settled_too, limit=SHOWN_MAX)


async def _read(
    settings: Settings, address: str, wanted: Wanted, *, whole: bool = False
) -> Sequence[Refused]:
    found: list[Refused] = []

    async def keep(_: RedrivePartition, records: Sequence[Refused]) -> None:
        found.extend(letter if whole else replace(letter, value=None) for letter in records)

    async with opened(settings.kafka, settings.app.id, wire_names.dead_letter_topic(address)) as topic:
        await scan(topic, wanted, Act(keep))
    return found
