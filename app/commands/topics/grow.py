"""``ringfence topics grow``: adds partitions to the input of an address that is in use.

The home of a group is its hash modulo the partition count. If the new count is a multiple of the old one, a
group of lane p stays there or moves to a successor. Successors are p + old, p + 2 old, and so on. Each
successor gets everything that lane p knows, its ring and its hop memory. Lane p keeps it too.

Meanwhile no worker may run, and all messages must be judged. Otherwise later messages of a group would be in
another partition than earlier ones. Successors get their content before their partitions exist, and the
records of lanes change last. Until then the former lanes are refused, with a message that names the next
step.
"""

import json
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Final

import click

from agents.lane.journal import RingEvent
from agents.topic_checks.changelog import newest_meta, newest_metas
from agents.topic_checks.lanes import lane_faults, live
from app.commands.confirmation import confirmed
from app.commands.rings.changelog_writer import Change, Event, OwnedLane, oldest_taken_ms, require_journal
from app.commands.rings.joined_rings import Entry, meta_entry
from app.commands.rings.offline_change import OfflineChange, carry_out, running_workers, worker_came
from app.commands.rings.show import LaneView
from app.commands.topics.growth_plan import (
    ORDER,
    Growth,
    GrowthError,
    Work,
    document,
    named_successors,
    needs_stop,
    plan,
    plan_input,
    print_plan,
)
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.topics import missing
from ringfence_kafka.config.chains import upstream
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import MissingTopicError
from ringfence_kafka.process.step_progress import Steps
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.wording import counted
from tables.codec import Meta

RECORDS_A_TRANSACTION: Final = 100_000
"""Maximum number of a successor's records in one transaction. Only the last, with its meta record, counts."""


def grow(
    settings: Settings,
    name: str,
    partitions: int,
    *,
    despite_backlog: bool,
    dry_run: bool,
    as_json: bool,
    yes: bool,
) -> int:
    """Add partitions to the input of an address. It can be repeated after any interruption.

    ``partitions``: new number, a multiple of the number at the start of its lanes. A dry run prints the plan
    and its obstacles, and returns 1 if there are some.

    Raises:
        GrowthError: The count is not possible; or workers run, or messages are not judged yet.
        MissingTopicError: A topic of the address does not exist.
        BrokerUnavailableError: The cluster does not answer.
    """
    address = settings.configured(name)
    if fed_by := upstream(name, settings.addresses):
        raise GrowthError(
            f"the input topic of {name} is {address.input_topic}, the accepted topic of {fed_by[0]}, whose lanes have recorded its "
            f"partition count; {name} has the same partitions. In a chain only the first address can get more: "
            f"'ringfence topics grow {fed_by[-1]}'"
        )
    say: Callable[[str], object] = (lambda _: None) if as_json else click.echo

    async def run(cluster: Cluster, progress: Steps) -> tuple[Work, list[str]]:
        growing = _Growing(settings, address, cluster, progress, say)
        return await growing.grow(partitions, despite_backlog=despite_backlog, dry_run=dry_run, yes=yes)

    work, obstacles = carry_out(settings, run, GrowthError)
    if as_json:
        click.echo(json.dumps(document(address, work, obstacles, dry_run=dry_run), indent=2))
    return int(bool(obstacles))


class _Growing(OfflineChange):
    """Growth of one address."""

    async def grow(
        self, wanted: int, *, despite_backlog: bool, dry_run: bool, yes: bool
    ) -> tuple[Work, list[str]]:
        """Grow, or only check; return the work and its obstacles."""
        self._progress.start_step(f"looking at the lanes of {self._address.name}")
        work = await self._work(wanted)
        self._progress.count(counted(self._address.lanes or work.growth.began, "lane"))
        self._progress.end()
        if work.done:
            self._say(
                f"{self._input} has {counted(wanted, 'partition')}, and its lanes have recorded it: nothing to do"
            )
            return work, []
        question = (
            f"Give {self._input} {counted(wanted, 'partition')}, where it has {work.counts[self._input]}"
        )
        self._progress.start_step("looking for workers and for messages that are left")
        obstacles = [obstacle async for obstacle in self._obstacles(work, despite_backlog=despite_backlog)]
        self._progress.count(counted(len(obstacles), "obstacle"))
        self._progress.end()
        if dry_run:
            print_plan(self._address, work, obstacles, self._say)
            return work, obstacles
        if obstacles:
            raise GrowthError("\n".join(obstacles))
        first = also = ""
        if not self._address.lanes:
            also, first = ", and copy IDs to its new lanes", "start workers and bridges, then producers; "
        confirmed(f"{question}{also}? Kafka cannot remove partitions again", yes=yes)
        if self._address.lanes:
            await self._give(self._input, dict(work.counts), wanted)
            self._say(f"workers may run: {ORDER}")
        else:
            await self._carry_out(work)
            self._progress.end()
        self._say(
            f"{first}a producer that runs learns of it within its metadata.max.age.ms. Write partitions = {wanted} for "
            f"{self._address.name} into the configuration"
        )
        return work, []

    async def _work(self, wanted: int) -> Work:
        topics = {"changelog": self._changelog, "forward topic": self._forward, "input topic": self._input}
        if self._address.lanes:
            del topics["forward topic"]
        counts = await self._cluster.topics.partition_counts([*topics.values()])
        for role, topic in topics.items():
            if topic not in counts:
                raise MissingTopicError(missing(role, self._address.name, topic))
        await require_journal(self._settings, self._cluster)
        found = await newest_metas(self._cluster, self._changelog, range(counts[self._changelog]))
        metas = live(found)
        if faults := lane_faults(self._address, metas.values()):
            raise GrowthError("\n".join(faults))
        if self._address.lanes:
            growth = plan_input(self._address, counts[self._input], metas, wanted)
            return Work(growth, {self._input: counts[self._input]}, metas, [])
        growth = plan(self._address, counts[self._input], metas, wanted)
        left = [lane for lane, meta in metas.items() if meta.partition_counts.get(self._input) != wanted]
        return Work(growth, {topic: counts[topic] for topic in topics.values()}, metas, left)

    async def _obstacles(self, work: Work, *, despite_backlog: bool) -> AsyncIterator[str]:
        if self._address.lanes and not needs_stop(self._address, work.growth, work.metas):
            return
        advice = ": stop all of them by SIGTERM, when producers have stopped and everything is judged"
        if running := await running_workers(self._settings, self._cluster, advice):
            yield running
        if despite_backlog or self._address.lanes:
            return
        left = []
        for lane in range(work.growth.began):
            for topic in (self._input, self._forward):
                if text := await self._unjudged(topic, lane, work.metas.get(lane)):
                    left.append(text)
                    break
        if left:
            more = f", and {len(left) - 1} more lanes have something left" if len(left) > 1 else ""
            yield (
                f"{left[0]}{more}: waiting messages of a group that moves would come after later "
                "ones. Stop producers, let workers reach a lag of 0, stop them, and run this again; or "
                "accept it with --despite-backlog"
            )

    async def _carry_out(self, work: Work) -> None:
        growth, counts, progress = work.growth, dict(work.counts), self._progress
        lanes = counted(len(work.parents), "lane")
        progress.start_step(f"giving topics of {self._address.name} {counted(growth.wanted, 'partition')}")
        await self._give(self._changelog, counts, growth.wanted)
        if counts[self._input] == growth.began:
            # from here on the address is refused, because its topics do not fit each other
            await self._give(self._forward, counts, growth.wanted)
        done = 0
        progress.start_step("copying what lanes know")
        progress.count(lambda: f"{done:,} of {lanes}, {counted(progress.records, 'record')}")
        for lane in work.parents:
            await self._hand_on(lane, work)
            done += 1
        progress.start_step(f"giving {self._forward} and {self._input} {counted(growth.wanted, 'partition')}")
        for name in (self._forward, self._input):
            await self._give(name, counts, growth.wanted)
        noted = 0
        progress.start_step("recording the new partition count")
        progress.count(lambda: f"{noted:,} of {lanes}")
        for lane in work.parents:
            await self._record(lane, work)
            noted += 1

    async def _hand_on(self, lane: int, work: Work) -> None:
        """Copy a lane's IDs, with their keys and times, to successors that have not processed messages since."""
        metas = work.metas
        async with OwnedLane(self._settings, self._address, lane):
            view = LaneView(self._settings, self._address, self._cluster, lane, dated=True)
            restore = await view.read_on()
        if restore.meta != metas[lane]:
            raise worker_came(self._settings, GrowthError)
        accepted_at = view.accepted_at
        entries = [Entry(key, value, accepted_at.get(key)) for key, value in restore.occupants.items()]
        entries += [Entry(key, value) for key, value in restore.hops.items()]
        counted_meta = self._with_count(metas[lane], work.growth)
        meta = counted_meta._replace(next_offsets={})  # inputs begin at their start
        for successor in work.growth.successors(lane):
            if successor in metas and metas[successor].next_offsets:
                continue
            records = [*entries, meta_entry(meta._replace(incarnation=secrets.token_hex(8)))]
            async with OwnedLane(self._settings, self._address, successor) as owned:
                oldest_ms = await oldest_taken_ms(self._cluster, self._changelog)
                for begin in range(0, len(records), RECORDS_A_TRANSACTION):
                    some = records[begin : begin + RECORDS_A_TRANSACTION]
                    await owned.write([Change(successor, some)], oldest_ms=oldest_ms)

    async def _record(self, lane: int, work: Work) -> None:
        """Write a lane's new count, and a journal event with its offsets, in one transaction."""
        growth = work.growth
        meta = self._with_count(work.metas[lane], growth)
        async with OwnedLane(self._settings, self._address, lane) as owned:
            if await newest_meta(self._cluster, self._changelog, lane) != work.metas[lane]:
                raise worker_came(self._settings, GrowthError)
            event = Event(RingEvent.GROWN, lane, *growth, meta)
            await owned.write([Change(lane, [meta_entry(meta)])], [event])
        successors = named_successors(self._address, growth, lane)
        self._say(f"{wire_names.lane_name(self._address.name, lane)}  IDs copied to {successors}")

    def _with_count(self, meta: Meta, growth: Growth) -> Meta:
        return meta._replace(partition_counts={**meta.partition_counts, self._input: growth.wanted})
