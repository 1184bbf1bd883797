"""Reads the dead letters of consumer groups at an address."""

from collections.abc import Callable, Sequence

from app.commands.repair.records import Refused, Selection, Wanted
from app.commands.repair.redrive_log import RedrivePartition
from app.commands.repair.scan import opened, scan
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.protocol import wire_names


async def read_letters(
    settings: Settings,
    address: str,
    selection: Selection,
    keep: Callable[[Refused], None],
    *,
    settled_too: bool = False,
    limit: int | None = None,
) -> None:
    """Call ``keep`` for each selected open dead letter, or with ``settled_too`` for settled ones too.

    Raises:
        BrokerUnavailableError: The cluster does not answer, or denies access.
    """

    async def act(_: RedrivePartition, letters: Sequence[Refused]) -> None:
        for letter in letters:
            keep(letter)

    wanted = Wanted(selection, lambda record: record.key, settled_too, limit)
    async with opened(settings.kafka, settings.app.id, wire_names.dead_letter_topic(address)) as topic:
        await scan(topic, wanted, act)
