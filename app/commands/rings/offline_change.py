"""Commands that write as lanes while no worker runs. After an interruption, a new run continues them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from aiokafka.errors import KafkaError

from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_admin import NO_MEMBERS
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import BrokerUnavailableError, RingfenceError, named
from ringfence_kafka.groups.trusted_offsets import own_commit
from ringfence_kafka.process import failpoints
from ringfence_kafka.process.step_progress import Steps, steps
from ringfence_kafka.producer.transactional import FencedError
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.readers.log_reader import LogReader, LogStalledError
from ringfence_kafka.readers.read_counts import observed
from ringfence_kafka.wording import counted
from tables.codec import Meta

Result = TypeVar("Result")
Error = TypeVar("Error", bound=RingfenceError)

AGAIN: Final = "run this again: it continues where it ended"
SHOWN_LIMIT_S: Final = 15.0


class OfflineChange:
    """Change of the lanes of one address, with its output."""

    def __init__(
        self,
        settings: Settings,
        address: AddressSettings,
        cluster: Cluster,
        progress: Steps,
        say: Callable[[str], object],
    ) -> None:
        self._settings = settings
        self._address = address
        self._cluster = cluster
        self._progress = progress
        self._say = say
        self._input = address.input_topic
        self._changelog = wire_names.changelog_topic(settings.app.id, address.name)
        self._forward = wire_names.forward_topic(settings.app.id, address.name)

    async def _give(self, topic: str, counts: dict[str, int], wanted: int) -> None:
        """Give a topic as many partitions, if it has fewer, and keep ``counts`` up to date."""
        if counts[topic] < wanted:
            await self._cluster.topics.add_partitions(topic, wanted, SHOWN_LIMIT_S)
            self._say(f"{topic}  {counted(counts[topic], 'partition')}, now {wanted}")
            counts[topic] = wanted

    async def _unjudged(self, topic: str, lane: int, meta: Meta | None) -> str:
        """Return how far a lane has judged its partition of a topic; empty = to the end."""
        begin = await first_unjudged(self._cluster, topic, lane, meta)
        end = await self._cluster.offsets.high_watermark(topic, lane)
        if not await anything(self._settings, topic, lane, begin, end):
            return ""
        name = wire_names.lane_name(self._address.name, lane)
        return f"lane {name} has judged {topic}/{lane} up to {begin} of {end}"


async def first_unjudged(cluster: Cluster, topic: str, partition: int, meta: Meta | None) -> int:
    """Return the first unjudged offset of an input, by the lane's last meta record."""
    noted, start, identity = await asyncio.gather(
        cluster.groups.committed(topic, partition),
        cluster.offsets.log_start(topic, partition),
        cluster.topics.identity(topic),
    )
    ours = own_commit(noted)  # the offset of a foreign consumer does not count
    committed = None if ours is None else ours.offset
    return unjudged_from((topic, partition), identity.topic_id, meta, committed, start)


def unjudged_from(
    place: tuple[str, int], topic_id: str, meta: Meta | None, committed: int | None, start: int
) -> int:
    """Return the first unjudged offset. Pure.

    Offsets in another topic of that name than ``topic_id`` do not count. ``committed``: offset of the group;
    ``start``: start of the log.
    """
    if meta is None:
        return max(committed or 0, start)
    if meta.is_recreated(place[0], topic_id):
        return start
    return max(meta.next_of(*place) or 0, committed or 0, start)


async def anything(settings: Settings, topic: str, partition: int, begin: int, end: int) -> bool:
    """Return whether a range has a record. Markers and aborted records do not need a judgement.

    Without an answer it may have one: records behind an open transaction are not judged.
    """
    if begin >= end:
        return False
    place = topic, partition
    found = await LogReader(settings.kafka).first_records({place: (begin, end)})
    return found.get(place, True) is not None


async def running_workers(settings: Settings, cluster: Cluster, advice: str) -> str:
    """Return that workers run, with ``advice``; empty = none runs."""
    await cluster.groups.await_coordinator()
    if (state := await cluster.groups.state()) in NO_MEMBERS:
        return ""
    return (
        f"workers of {settings.app.id} run (its group is {state}){advice}; a worker that was killed counts "
        "until its session ends"
    )


def worker_came(settings: Settings, error: type[Error]) -> Error:
    """Return the error of a command that is not the only writer."""
    return error(
        "a worker, or another run of a verb that writes rings, has started meanwhile: stop all workers of "
        f"{settings.app.id}, let the other run end, then {AGAIN}"
    )


def carry_out(
    settings: Settings,
    work: Callable[[Cluster, Steps], Coroutine[Any, Any, Result]],
    error: type[RingfenceError],
) -> Result:
    """Run the work of a command, and show its steps.

    Raises:
        RingfenceError: ``error``, also if a worker has fenced the command.
        BrokerUnavailableError: The cluster does not answer.
    """

    async def run(progress: Steps) -> Result:
        async with Cluster(settings.kafka, settings.app.id) as cluster:
            return await work(cluster, progress)

    failpoints.install_from_environment()
    try:
        with steps() as progress, observed(progress.add_records):
            return asyncio.run(run(progress))
    except FencedError as fenced:
        raise worker_came(settings, error) from fenced
    except (KafkaError, LogStalledError, TimeoutError) as failure:
        raise BrokerUnavailableError(
            f"{named(failure)}: look at the brokers and at this user's rights, then {AGAIN}"
        ) from failure
