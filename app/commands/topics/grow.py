"""``ringfence topics grow``: more partitions for the input of an address whose lanes have begun.

A group's home is its hash modulo the partition count. Where the new count is a multiple of the old one, what is at home in lane p
stays there or moves to one of its heirs: p + old, p + 2 old, … So each heir is given all that lane p knows, its ring and what came over
bridges, and nothing that was known is forgotten. Lane p goes on with all of it, too: both know more than they will be asked.

No worker may run meanwhile, and nothing may be left to judge: a group's later messages would be in another partition than its earlier
ones. Heirs have everything before there is a partition that they could read, and the lanes' own records are changed last: wherever this
ends before its end, lanes that began before are refused, by the line that says how it goes on.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Final

import click
from aiokafka.errors import KafkaError

from agents.lane.journal import RingEvent
from agents.topic_checks.changelog import newest_meta
from app.commands.confirmation import confirmed
from app.commands.rings.changelog_writer import OwnedLane, require_journal
from app.commands.rings.pending_input import anything, first_unjudged
from app.commands.rings.show import LaneView
from app.commands.topics.growth_plan import Growth, GrowthError, Work, document, foretell, named_heirs, plan
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_admin import NO_MEMBERS
from ringfence_kafka.admin.topics import missing
from ringfence_kafka.config.addresses import upstream
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import BrokerUnavailableError, MissingTopicError, named
from ringfence_kafka.process import failpoints
from ringfence_kafka.process.step_progress import Steps, steps
from ringfence_kafka.producer.transactional import FencedError
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.readers.log_reader import LogStalledError
from ringfence_kafka.readers.read_counts import observed
from ringfence_kafka.wording import counted
from tables import codec
from tables.codec import Meta
from tables.restore import Restore

SHOWN_LIMIT_S: Final = 15.0
RECORDS_A_TRANSACTION: Final = 100_000
"""An heir may be given so much more than one transaction should hold; what counts is the last one, which has its meta record."""
AGAIN: Final = "run this again: it goes on where it ended"


def grow(
    settings: Settings,
    name: str,
    partitions: int,
    *,
    despite_backlog: bool = False,
    dry_run: bool = False,
    as_json: bool = False,
    yes: bool = True,
) -> int:
    """Give the input of an address more partitions. Safe to repeat, wherever it ended.

    Args:
        settings: The addresses.
        name: One of them.
        partitions: As many as it is to have: a multiple of those that it had when its lanes began.
        despite_backlog: Also where messages are left to judge: of a group that moves, they may come behind later ones.
        dry_run: Change nothing; say what would be done, and what is in the way now.
        as_json: As a document, when all is done.
        yes: Do not ask.

    Returns:
        The exit code: 0; of a dry run 1 where something is in the way.

    Raises:
        ConfigurationError: unknown address.
        GrowthError: not so many; or workers run, or have something left to judge.
        MissingTopicError: a topic of the address does not exist.
        TopicError: the cluster refuses.
        BrokerUnavailableError: the cluster does not answer.
        DeclinedError: somebody was asked, and said no.
    """
    failpoints.install_from_environment()
    address = settings.configured(name)
    if fed_by := upstream(name, settings.addresses):
        raise GrowthError(
            f"the input topic of {name} is {address.input_topic}, the accepted topic of {fed_by[0]}, whose lanes have recorded its "
            f"partition count: it keeps that count, and {name} as many lanes. In a chain only the first address can get more: "
            f"'ringfence topics grow {fed_by[-1]}'"
        )
    say: Callable[[str], object] = (lambda _: None) if as_json else click.echo
    try:
        with steps() as progress, observed(progress.add):
            growing = _grow(
                settings, address, partitions, say, progress,
                despite_backlog=despite_backlog, dry_run=dry_run, yes=yes,
            )  # fmt: skip
            work, obstacles = asyncio.run(growing)
    except FencedError as error:
        raise _come(settings) from error
    except (KafkaError, LogStalledError, TimeoutError) as error:
        raise BrokerUnavailableError(
            f"{named(error)}: look at the brokers and at this user's rights, then {AGAIN}"
        ) from error
    if as_json:
        click.echo(json.dumps(document(address, work, obstacles, dry_run=dry_run), indent=2))
    return int(bool(obstacles))


def _come(settings: Settings) -> GrowthError:
    return GrowthError(f"a worker has come meanwhile: stop all workers of {settings.app.id}, then {AGAIN}")


async def _grow(
    settings: Settings,
    address: AddressSettings,
    wanted: int,
    say: Callable[[str], object],
    progress: Steps,
    *,
    despite_backlog: bool,
    dry_run: bool,
    yes: bool,
) -> tuple[Work, list[str]]:
    async with Cluster(settings.kafka, settings.app.id) as cluster:
        progress.begin(f"looking at the lanes of {address.name}")
        work = await _work(settings, address, cluster, wanted)
        progress.count(counted(work.growth.began, "lane"))
        progress.end()
        if work.done:
            say(f"{address.input_topic} has {wanted} partitions, and its lanes know it: nothing to do")
            return work, []
        progress.begin("looking for workers and for messages that are left")
        obstacles = [
            obstacle
            async for obstacle in _obstacles(
                settings, address, cluster, work, despite_backlog=despite_backlog
            )
        ]
        progress.count(counted(len(obstacles), "obstacle"))
        progress.end()
        if dry_run:
            foretell(address, work, obstacles, say)
            return work, obstacles
        if obstacles:
            raise GrowthError("\n".join(obstacles))
        confirmed(
            f"Give {address.input_topic} {wanted} partitions, where it has {work.counts[address.input_topic]}, and new lanes what the others know? "
            "Kafka takes no partition away again",
            yes=yes,
        )
        await _carry_out(settings, address, cluster, work, say, progress)
    progress.end()
    say(
        f"start workers and bridges, then producers; a producer that runs learns of it within its metadata.max.age.ms. Write partitions = "
        f"{wanted} for {address.name} into the configuration"
    )
    return work, []


async def _work(settings: Settings, address: AddressSettings, cluster: Cluster, wanted: int) -> Work:
    changelog = wire_names.changelog_topic(settings.app.id, address.name)
    forward = wire_names.forward_topic(settings.app.id, address.name)
    topics = {"changelog": changelog, "forward topic": forward, "input topic": address.input_topic}
    counts = await cluster.topics.partition_counts([*topics.values()])
    for role, topic in topics.items():
        if topic not in counts:
            raise MissingTopicError(missing(role, address.name, topic))
    await require_journal(settings, cluster)
    metas = await _metas(cluster, changelog, counts[changelog])
    growth = plan(address, counts[address.input_topic], metas, wanted)
    left = [lane for lane in metas if metas[lane].partition_counts.get(address.input_topic) != wanted]
    return Work(growth, {topic: counts[topic] for topic in topics.values()}, metas, left)


async def _obstacles(
    settings: Settings, address: AddressSettings, cluster: Cluster, work: Work, *, despite_backlog: bool
) -> AsyncIterator[str]:
    """What somebody has to do before."""
    await cluster.groups.await_coordinator()
    if (state := await cluster.groups.state()) not in NO_MEMBERS:
        yield (
            f"workers of {settings.app.id} run (its group is {state}): stop all of them by SIGTERM, when producers have stopped and "
            "everything is judged; a worker that was killed counts until its session ends"
        )
    if not despite_backlog:
        left = [setting async for setting in _unjudged(settings, address, cluster, work)]
        if left:
            more = f", and {len(left) - 1} more lanes have something left" if len(left) > 1 else ""
            yield (
                f"lane {left[0]}{more}: of a group that moves, what is left would come behind later messages. Stop producers, let workers "
                "come to a lag of 0, stop them, and run this again; or leave it at that, with --despite-backlog"
            )


async def _unjudged(
    settings: Settings, address: AddressSettings, cluster: Cluster, work: Work
) -> AsyncIterator[str]:
    """A lane each that has not judged all that stands in its inputs."""
    for lane in range(work.growth.began):
        for topic in (address.input_topic, wire_names.forward_topic(settings.app.id, address.name)):
            begin = await first_unjudged(cluster, topic, lane, work.metas.get(lane))
            end = await cluster.offsets.high_watermark(topic, lane)
            if begin < end and await anything(settings, topic, lane, begin, end):
                yield f"{wire_names.lane_name(address.name, lane)} has judged {topic}/{lane} up to {begin} of {end}"
                break


async def _carry_out(
    settings: Settings,
    address: AddressSettings,
    cluster: Cluster,
    work: Work,
    say: Callable[[str], object],
    progress: Steps,
) -> None:
    growth, counts, metas = work.growth, dict(work.counts), work.metas
    changelog, forward, topic = counts
    lanes = counted(len(work.parents), "lane")
    progress.begin(f"giving topics of {address.name} {growth.wanted} partitions")
    await _give(cluster, changelog, counts, growth.wanted, say)
    if counts[topic] == growth.began:
        # From here on the address is refused: its topics do not fit each other.
        await _give(cluster, forward, counts, growth.wanted, say)
    done = 0
    progress.begin("handing on what lanes know")
    progress.count(lambda: f"{done:,} of {lanes}, {counted(progress.records, 'record')}")
    for lane in work.parents:
        await _hand_on(settings, address, cluster, lane, growth, metas)
        done += 1
    progress.begin(f"giving {forward} and {topic} {growth.wanted} partitions")
    for name in (forward, topic):
        await _give(cluster, name, counts, growth.wanted, say)
    noted = 0
    progress.begin("recording the new partition count")
    progress.count(lambda: f"{noted:,} of {lanes}")
    for lane in work.parents:
        await _note(settings, address, cluster, lane, metas[lane], growth, say)
        noted += 1


async def _metas(cluster: Cluster, changelog: str, count: int) -> dict[int, Meta]:
    """The lanes' last meta records; those that never wrote any are left out."""
    found = await asyncio.gather(*(newest_meta(cluster, changelog, index) for index in range(count)))
    return {lane: meta for lane, meta in enumerate(found) if meta is not None}


async def _give(
    cluster: Cluster, topic: str, counts: dict[str, int], wanted: int, say: Callable[[str], object]
) -> None:
    if counts[topic] < wanted:
        await cluster.topics.add_partitions(topic, wanted, SHOWN_LIMIT_S)
        say(f"{topic}  {counts[topic]} partitions, now {wanted}")
        counts[topic] = wanted


async def _hand_on(
    settings: Settings,
    address: AddressSettings,
    cluster: Cluster,
    lane: int,
    growth: Growth,
    metas: Mapping[int, Meta],
) -> None:
    """Give a lane's heirs what it knows, but those that have worked with it since."""
    heirs = [heir for heir in growth.heirs(lane) if heir not in metas or not metas[heir].next_offsets]
    async with OwnedLane(settings, address, lane):
        restore = await LaneView(settings, address, cluster, lane).read_on()
    if restore.meta != metas[lane]:
        raise _come(settings)
    for heir in heirs:
        async with OwnedLane(settings, address, heir) as owned:
            await _inherit(address, owned, restore, metas[lane], growth)


async def _note(
    settings: Settings,
    address: AddressSettings,
    cluster: Cluster,
    lane: int,
    known: Meta,
    growth: Growth,
    say: Callable[[str], object],
) -> None:
    """Have a lane and the journal say, in one transaction, how many there are, and from where on."""
    name = wire_names.lane_name(address.name, lane)
    meta = _counted(address, known, growth)
    async with OwnedLane(settings, address, lane) as owned:
        if (
            await newest_meta(cluster, wire_names.changelog_topic(settings.app.id, address.name), lane)
            != known
        ):
            raise _come(settings)
        told = owned.told(RingEvent.GROWN, address.name, growth, meta)
        await owned.write([(codec.META_KEY, codec.encode_meta(meta))], [told])
    heirs = named_heirs(address, growth, lane)
    say(f"{name}  what it knows, {heirs} {'knows' if len(growth.heirs(lane)) == 1 else 'know'} too")


def _counted(address: AddressSettings, meta: Meta, growth: Growth) -> Meta:
    return meta._replace(partition_counts={**meta.partition_counts, address.input_topic: growth.wanted})


async def _inherit(
    address: AddressSettings, heir: OwnedLane, restore: Restore, known: Meta, growth: Growth
) -> None:
    """Everything, under the same keys; it begins its own inputs at their start."""
    meta = _counted(address, known, growth)._replace(next_offsets={}, incarnation=secrets.token_hex(8))
    entries: list[tuple[bytes, bytes | None]] = [*restore.occupants.items(), *restore.hops.items()]
    entries.append((codec.META_KEY, codec.encode_meta(meta)))
    for begin in range(0, len(entries), RECORDS_A_TRANSACTION):
        await heir.write(entries[begin : begin + RECORDS_A_TRANSACTION])
