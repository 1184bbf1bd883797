"""Parked messages: whether their dead letters are open, and how one without a letter is tried again."""

from collections.abc import Callable, Sequence

from app.commands.groups.lease_holders import LeaseHolders
from app.commands.repair.records import Refused, Selection, Wanted
from app.commands.repair.redrive_log import RedrivePartition
from app.commands.repair.scan import Act, opened, scan
from ringfence_client.progress.progress_record import Progress
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.protocol import wire_names


async def read_open_letters(
    settings: Settings, address: AddressSettings, consumer_group: str, keep: Callable[[Refused], None]
) -> None:
    """Call ``keep`` for each open dead letter of a consumer group.

    Raises:
        BrokerUnavailableError: The cluster does not answer, or denies access.
    """

    async def act(_: RedrivePartition, letters: Sequence[Refused]) -> None:
        for letter in letters:
            keep(letter)

    wanted = Wanted(Selection(consumer_group=consumer_group), lambda record: record.key)
    async with opened(
        settings.kafka, settings.app.id, wire_names.dead_letter_topic(address.name)
    ) as open_topic:
        await scan(open_topic, wanted, Act(act))


async def messages_with_letters(
    settings: Settings, address: AddressSettings, consumer_group: str
) -> set[tuple[int, int]]:
    """Return partition and offset of each message with an open dead letter. Raises as :func:`read_open_letters` does."""
    found: set[tuple[int, int]] = set()

    def keep(letter: Refused) -> None:
        if letter.accepted is not None and letter.accepted.topic == address.accepted_topic:
            found.add((letter.accepted.partition, letter.accepted.offset))

    await read_open_letters(settings, address, consumer_group, keep)
    return found


async def try_again(
    settings: Settings,
    address: AddressSettings,
    consumer_group: str,
    partition: int,
    progress: Progress,
    offset: int,
) -> str:
    """Let the group of a parked message go on with this message; return why not, empty = done.

    Raises:
        RepairError: A consumer started meanwhile.
    """
    redrives = {offset: progress.redriven.get(offset, 0) + 1}
    async with LeaseHolders(settings, address) as holders:
        answer = await holders.redrive(consumer_group, partition, redrives)
    return "" if offset in answer.done else answer.left
