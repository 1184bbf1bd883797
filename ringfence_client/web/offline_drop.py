"""Changes the due messages of a partition that no consumer holds."""

from collections.abc import Awaitable, Callable
from typing import Final

from ringfence_client.consumer.foreign_members import watch_of
from ringfence_client.handlers.options import ConsumerOptions
from ringfence_client.partition import topics
from ringfence_client.partition.dead_letters import DeadLetters
from ringfence_client.partition.lease_acquisition import LeaseAcquisition
from ringfence_client.progress.lease import LostError
from ringfence_client.progress.progress_topic import ProgressTopic
from ringfence_client.sends.destinations import Destinations
from ringfence_client.sends.state_reader import StateReader
from ringfence_client.web.group_rows import find_groups
from ringfence_client.window.memory_budget import MemoryBudget
from ringfence_client.window.window import Window
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_admin import NO_MEMBERS
from ringfence_kafka.config.settings import AddressSettings, Settings

WRITE_LIMIT_S: Final = 20.0


async def drop_below(
    settings: Settings,
    address: AddressSettings,
    cluster: Cluster,
    partition: int,
    group: bytes,
    below: int,
    topic_id: str,
    waiting: Callable[[str], None],
) -> None:
    """Drop the group's messages below this offset, as :func:`change` does.

    The next holder skips those that it has not fetched. Messages that the progress names are finished at once, because a dead letter may be
    redriven before that.
    """

    async def drop(window: Window) -> None:
        offsets = window.unfetched(below)
        groups = await find_groups(settings.kafka, address.accepted_topic, partition, offsets)
        window.drop_unfetched(group, groups)
        window.purge(group, below)

    await change(settings, address, cluster, partition, drop, topic_id, waiting)


async def change(
    settings: Settings,
    address: AddressSettings,
    cluster: Cluster,
    partition: int,
    what: Callable[[Window], Awaitable[None] | None],
    topic_id: str,
    waiting: Callable[[str], None],
) -> None:
    """Change and write the progress of a partition. Takes its lease for a moment.

    ``topic_id``: ID of the topic that the change is for. ``waiting`` is called once with a description of the holder, if the lease is not
    free: a dead holder keeps it until the time-out.

    Raises:
        NotOwnerError: The consumer group has members.
        LostError: A member joined meanwhile, or the topic was created again.
    """
    dead_letters = DeadLetters(await topics.prepare(settings, address, cluster), cluster.group_id)
    progress = ProgressTopic(cluster, settings.app.id)
    await progress.start()
    options = ConsumerOptions()
    opening = LeaseAcquisition(
        progress,
        dead_letters,
        options,
        MemoryBudget(options.memory_max),
        watch_of(cluster, address.accepted_topic),
        StateReader(cluster, Destinations(settings, address, cluster.group_id, cluster)),
    )

    said: list[str] = []

    def say_once(text: str) -> None:
        if not said:
            said.append(text)
            waiting(text)

    async def confirm() -> bool:
        return await cluster.groups.state() in NO_MEMBERS

    try:
        lease, window, writer = await opening.open(address.accepted_topic, partition, confirm, say_once)
        same = lease.topic_id == topic_id
        try:
            if same and (changing := what(window)) is not None:
                await changing
        except BaseException:
            await writer.abandon()
            raise
        writer.start(lambda: None)
        try:
            await writer.persisted()
        finally:
            await writer.close(WRITE_LIMIT_S, released=not window.suspect_below)
        if not same:
            raise LostError(f"{lease.topic} was deleted and created again meanwhile")
    finally:
        await opening.stop()
        await progress.stop()
