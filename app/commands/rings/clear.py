"""``ringfence rings clear``: forget all IDs of an address, or what has come over bridges, at one definite point of each lane.

Exactly-once too: the floor, or the tombstones, are written as the lane itself: who runs it is fenced, opens again, and finds them. A lane under traffic
fences back as soon as it has opened; so nearly all is read before the fence, and who is fenced tries again.
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
"""A worker's lane waits 0.1 s before it opens again; what is done between two fences takes about as long."""


class ContestedError(RingfenceError):
    """Workers take a lane back before its floor is written."""


def clear(settings: Settings, name: str, *, despite_lag: bool = False, yes: bool = False) -> int:
    """Forget all IDs of an address, or what has come over bridges. Says of each lane when it is done: what failed later does not undo it.

    Args:
        settings: The addresses.
        name: One of them, or ``BRIDGE.<address>``.
        despite_lag: Forget what has come over bridges also while lanes have not judged all that did.
        yes: Do not ask.

    Raises:
        ConfigurationError: unknown address.
        UnreadError: lanes do not judge what has come.
        TopicError: there is no changelog, or no journal; or one of them takes no record of a lane's.
        ContestedError: a lane is too busy.
        BrokerUnavailableError: the cluster does not answer, or refuses.
    """
    bridged = hop_memory.address_of(settings, name)
    order = _IDS if bridged is None else _HOPS
    if despite_lag and bridged is None:
        raise click.UsageError(f"--despite-lag is for {wire_names.HOP_MEMORY}ADDRESS: leave it out")
    order = order._replace(waits=order.waits and not despite_lag)
    address = bridged or settings.configured(name)
    confirmed(f"Forget all {order.what} of {name}? What is sent again from now on is accepted again", yes=yes)
    with steps() as progress:
        asyncio.run(_clear(settings, address, order, click.echo, progress))
    return 0


class Forgetting(NamedTuple):
    """What a lane is to forget."""

    count: Callable[[Restore], int]
    """How much of it there is."""
    what: str
    """In a line that says so."""
    entries: Callable[[Restore], list[tuple[bytes, bytes | None]]]
    """Changelog records that make it forget, without the meta record; None = tombstone."""
    meta: Callable[[codec.Meta], codec.Meta]
    """The meta record, which closes the transaction."""
    name: Callable[[str], str]
    """By which the journal knows it, from the address's name."""
    waits: bool = False
    """Not before lanes have judged all that stands in their inputs."""


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


async def _clear(
    settings: Settings,
    address: AddressSettings,
    order: Forgetting,
    say: Callable[[str], None],
    progress: Steps,
) -> None:
    async with Cluster(settings.kafka, settings.app.id) as cluster:
        count = await show.lanes(settings, address, cluster)
        await require_journal(settings, cluster)
        views = [show.LaneView(settings, address, cluster, number) for number in range(count)]
        if order.waits:
            progress.begin(f"waiting until lanes of {address.name} have judged their inputs")
            progress.count(counted(count, "lane"))
            try:
                await await_judged(settings, address, cluster, views)
            except (KafkaError, LogStalledError, TimeoutError) as error:
                raise BrokerUnavailableError(
                    f"nothing is cleared: what lanes have judged cannot be told ({str(error) or type(error).__name__}): look at the "
                    "brokers and at this user's rights, and run it again"
                ) from error
        done = total = 0
        progress.begin(f"clearing {order.name(address.name)}")
        progress.count(lambda: f"{done:,} of {counted(count, 'lane')}, {total:,} {order.what} forgotten")
        for view in views:
            lane = wire_names.lane_name(address.name, view.partition)
            try:
                forgotten = await _clear_lane(settings, address, view, order)
            except TopicError as error:
                raise TopicError(f"{lane} is not cleared: {error}. Lanes named before it are") from error
            except (KafkaError, LogStalledError, TimeoutError) as error:
                raise BrokerUnavailableError(
                    f"{lane} is not cleared: {str(error) or type(error).__name__}. Lanes named before it are; look at the "
                    "brokers and at this user's rights, and run it again"
                ) from error
            say(f"cleared  {lane}  {forgotten} {order.what} forgotten")
            done, total = done + 1, total + forgotten


async def _clear_lane(
    settings: Settings, address: AddressSettings, view: show.LaneView, order: Forgetting
) -> int:
    """Returns how much there was to forget."""
    for _ in range(TRIES):
        await view.read_on()
        try:
            async with OwnedLane(settings, address, view.partition) as owned:
                restore = await view.read_on()
                if restore.meta is None:
                    return 0
                count = order.count(restore)
                meta = order.meta(restore.meta)
                told = owned.told(
                    RingEvent.CLEARED,
                    order.name(address.name),
                    (meta.capacity, meta.capacity),
                    meta,
                )
                await owned.write(
                    [*order.entries(restore), (codec.META_KEY, codec.encode_meta(meta))], [told]
                )
                return count
        except FencedError:
            continue
    raise ContestedError(
        f"{wire_names.lane_name(address.name, view.partition)} is not cleared: its worker took it back {TRIES} times before its "
        f"{order.what} were forgotten. Lanes named before it are; stop the workers of {address.name}, or its producers, and run "
        "it again"
    )
