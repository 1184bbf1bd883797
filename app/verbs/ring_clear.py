"""``ringfence rings clear``: forget all IDs of an address, at one definite point of each lane, exactly-once too.

The floor is written as the lane itself: who runs it is fenced, opens again, and finds the floor. A lane under traffic
fences back as soon as it has opened; so nearly all is read before the fence, and who is fenced tries again.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import click
from aiokafka.errors import KafkaError

from agents import journal
from agents.topic_faults import missing_journal
from app.verbs import rings
from ringfence_kafka import wire
from ringfence_kafka.cluster import Cluster
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import BrokerUnavailableError, MissingTopicError, RingfenceError, TopicError
from ringfence_kafka.log_reader import LogStalledError
from ringfence_kafka.producer import FencedError, Outgoing, TransactionalProducer
from tables import codec

FENCE_LIMIT_S: Final = 30.0
TRIES: Final = 20
"""A worker's lane waits 0.1 s before it opens again; what is done between two fences takes about as long."""


class ContestedError(RingfenceError):
    """Workers take a lane back before its floor is written."""


def clear(settings: Settings, address: str) -> int:
    """Forget all IDs of an address. Says of each lane when it is done: what failed later does not undo it.

    Raises:
        ConfigurationError: unknown address.
        TopicError: there is no changelog, or no journal; or one of them takes no record of a lane's.
        ContestedError: a lane is too busy.
        BrokerUnavailableError: the cluster does not answer, or refuses.
    """
    asyncio.run(_clear(settings, settings.configured(address), click.echo))
    return 0


async def _clear(settings: Settings, address: AddressSettings, say: Callable[[str], None]) -> None:
    async with Cluster(settings.kafka, settings.app.id) as cluster:
        count = await rings.lanes(settings, address, cluster)
        await _require_journal(settings, cluster)
        for number in range(count):
            lane = wire.lane_name(address.name, number)
            try:
                forgotten = await _clear_lane(
                    settings, address, rings.LaneView(settings, address, cluster, number)
                )
            except TopicError as error:
                raise TopicError(f"{lane} is not cleared: {error}. Lanes named before it are") from error
            except (KafkaError, LogStalledError, TimeoutError) as error:
                raise BrokerUnavailableError(
                    f"{lane} is not cleared: {str(error) or type(error).__name__}. Lanes named before it are; look at the "
                    "brokers and at this user's rights, and run it again"
                ) from error
            say(f"cleared  {lane}  {forgotten} IDs forgotten")


async def _require_journal(settings: Settings, cluster: Cluster) -> None:
    """Before anybody is fenced: without it no floor can be written."""
    name = wire.journal_topic(settings.app.id)
    if name not in await cluster.partition_counts([name]):
        raise MissingTopicError(missing_journal(settings.app.id))


async def _clear_lane(settings: Settings, address: AddressSettings, view: rings.LaneView) -> int:
    """Returns how many IDs were live."""
    for _ in range(TRIES):
        await view.read_on()
        producer = TransactionalProducer(
            settings.kafka,
            wire.transactional_id(settings.app.id, address.name, view.partition),
            wire.lane_name(address.name, view.partition),
        )
        try:
            async with asyncio.timeout(FENCE_LIMIT_S):
                await producer.fence()
            restore = await view.read_on()
            if restore.meta is None:
                return 0
            await _write_floor(settings, address, producer, view.partition, restore.meta)
            return len(rings.live_slots(restore))
        except FencedError:
            continue
        finally:
            await producer.discard()
    raise ContestedError(
        f"{wire.lane_name(address.name, view.partition)} is not cleared: its worker took it back {TRIES} times before its "
        f"IDs were forgotten. Lanes named before it are; stop the workers of {address.name}, or its producers, and run "
        "it again"
    )


async def _write_floor(
    settings: Settings,
    address: AddressSettings,
    producer: TransactionalProducer,
    partition: int,
    known: codec.Meta,
) -> None:
    builder = producer.builder()
    meta = known._replace(floor=known.head)
    builder.append(timestamp=None, key=codec.META_KEY, value=codec.encode_meta(meta), headers=[])
    told = journal.outgoing(
        producer.builder(), settings.app.id, journal.RingEvent.CLEARED, address.name, partition,
        (meta.capacity, meta.capacity), meta.next_offsets,
    )  # fmt: skip
    topic = wire.changelog_topic(settings.app.id, address.name)
    async with asyncio.timeout(FENCE_LIMIT_S):
        await producer.transact([Outgoing(topic, partition, builder), told], {}, settings.app.id)
