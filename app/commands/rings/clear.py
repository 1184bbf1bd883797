"""``ringfence rings clear``: makes each lane of an address forget all IDs, or all hops, at one point.

The floor, or the tombstones, are written as the lane itself. This fences its worker, which opens the lane
again and reads them. A busy worker fences this command as soon as it has opened the lane. Therefore the
command reads nearly everything before the fence, and retries a fenced write.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

import click
from aiokafka.errors import KafkaError

from agents.lane.journal import RingEvent
from app.commands.confirmation import confirmed
from app.commands.rings import hop_memory, show
from app.commands.rings.changelog_writer import OwnedLane, require_journal
from app.commands.rings.pending_input import await_judged
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import BrokerUnavailableError, RingfenceError, TopicError
from ringfence_kafka.process.step_progress import Steps, steps
from ringfence_kafka.producer.transactional import FencedError
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.readers.log_reader import LogStalledError
from ringfence_kafka.wording import counted
from tables import codec
from tables.restore import Restore

TRIES: Final = 20
"""Number of tries. A lane waits 0.1 s before it opens again, about as long as the work between two fences."""


class ContestedError(RingfenceError):
    """A worker takes a lane back before its floor is written."""


def clear(settings: Settings, name: str, *, despite_lag: bool = False, yes: bool = False) -> int:
    """Forget all IDs of an address, or all hops. A later failure does not undo a reported lane.

    Args:
        settings: Configuration.
        name: Address, or ``BRIDGE.<address>``.
        despite_lag: Forget hops even if lanes have not judged all messages that came over bridges.
        yes: Do not ask.

    Raises:
        UnreadError: Lanes do not judge their inputs.
        TopicError: Changelog or journal do not exist, or refuse a record.
        ContestedError: A lane is too busy.
        OtherLanesError: The lanes differ from the file, or are being regrouped.
        BrokerUnavailableError: The cluster does not answer, or denies access.
    """
    bridged = hop_memory.address_of(settings, name)
    order = _IDS if bridged is None else _HOPS
    if despite_lag and bridged is None:
        raise click.UsageError(f"--despite-lag is for {wire_names.HOP_MEMORY}ADDRESS: leave it out")
    order = order._replace(waits=order.waits and not despite_lag)
    address = bridged or settings.configured(name)
    confirmed(f"Forget all {order.what} of {name}? Duplicates of earlier messages are then accepted", yes=yes)
    with steps() as progress:
        asyncio.run(_clear(settings, address, order, progress))
    return 0


class Forgetting(NamedTuple):
    """Memory that a lane forgets."""

    count: Callable[[Restore], int]
    what: str
    """Name of its entries in output lines."""
    entries: Callable[[Restore], list[tuple[bytes, bytes | None]]]
    """Returns changelog records, without the meta record; None = tombstone."""
    meta: Callable[[codec.Meta], codec.Meta]
    """Returns the meta record, which ends the transaction."""
    name: Callable[[str], str]
    """Returns its name in the journal, from the address's name."""
    waits: bool = False
    """Whether lanes must have judged their inputs before."""


_IDS: Final = Forgetting(
    lambda restore: len(show.live_slots(restore)),
    "IDs",
    lambda _: [],
    lambda meta: meta._replace(floor=meta.head),
    lambda address: address,
)
_HOPS: Final = Forgetting(
    lambda restore: len({codec.decode_hops(*item)[0].source for item in restore.hops.items()}),
    "sources of bridges",
    lambda restore: [(key, None) for key in restore.hops],
    lambda meta: meta,
    lambda address: wire_names.HOP_MEMORY + address,
    waits=True,
)


async def _clear(settings: Settings, address: AddressSettings, order: Forgetting, progress: Steps) -> None:
    async with Cluster(settings.kafka, settings.app.id) as cluster:
        views = await show.lane_views(settings, address, cluster, to_write=True)
        lanes = counted(len(views), "lane")
        await require_journal(settings, cluster)
        if order.waits:
            progress.start_step(f"waiting until lanes of {address.name} have judged their inputs")
            progress.count(lanes)
            try:
                await await_judged(settings, address, cluster, views)
            except (KafkaError, LogStalledError, TimeoutError) as error:
                raise BrokerUnavailableError(
                    "nothing is cleared: the positions of lanes are unknown "
                    f"({str(error) or type(error).__name__}): look at the brokers and at this user's "
                    "rights, and run it again"
                ) from error
        done = total = 0
        progress.start_step(f"clearing {order.name(address.name)}")
        progress.count(lambda: f"{done:,} of {lanes}, {total:,} {order.what} forgotten")
        for view in views:
            try:
                forgotten = await _clear_lane(settings, address, view, order)
            except TopicError as error:
                raise TopicError(
                    f"{view.lane} is not cleared: {error}. Lanes named before it are cleared"
                ) from error
            except (KafkaError, LogStalledError, TimeoutError) as error:
                raise BrokerUnavailableError(
                    f"{view.lane} is not cleared: {str(error) or type(error).__name__}. Lanes named before "
                    "it are cleared; look at the brokers and at this user's rights, and run it again"
                ) from error
            click.echo(f"cleared  {view.lane}  {forgotten} {order.what} forgotten")
            done, total = done + 1, total + forgotten


async def _clear_lane(
    settings: Settings, address: AddressSettings, view: show.LaneView, order: Forgetting
) -> int:
    for _ in range(TRIES):
        await view.read_on()
        try:
            async with OwnedLane(settings, address, view.number) as owned:
                restore = await view.read_on()
                if restore.meta is None:
                    return 0
                show.require_own_lanes(address, [restore.meta])
                count = order.count(restore)
                meta = order.meta(restore.meta)
                entries = [*order.entries(restore), (codec.META_KEY, codec.encode_meta(meta))]
                capacities, name = (meta.capacity, meta.capacity), order.name(address.name)
                record = owned.journal_record(RingEvent.CLEARED, name, capacities, meta)
                await owned.write(entries, [record])
                return count
        except FencedError:
            continue
    raise ContestedError(
        f"{view.lane} is not cleared: its worker took it back {TRIES} times before its {order.what} were "
        f"forgotten. Lanes named before it are cleared; stop the workers of {address.name}, or its "
        "producers, and run it again"
    )
