"""``ringfence rings regroup``: changes the number of lanes of an address that is in use.

A lane owns partitions of the input, and its ring knows the IDs whose home is there. The new rings are written
from the old ones: a lane gets the IDs of all former lanes whose partitions it owns. They are ordered by the
time of acceptance, and the newest ``id_cache_size`` stay. A slot does not name its home partition, so each
successor of a divided lane gets all its IDs.

:mod:`app.commands.rings.regroup_steps` has the steps.
"""

import asyncio
import json
from collections.abc import Callable

import click

from agents.topic_checks.changelog import newest_metas
from agents.topic_checks.lanes import is_marked, shown_lanes
from app.commands.confirmation import confirmed
from app.commands.rings.changelog_writer import require_journal
from app.commands.rings.joined_rings import Forwarded
from app.commands.rings.offline_change import OfflineChange, carry_out, running_workers, worker_came
from app.commands.rings.regroup_plan import (
    RegroupError,
    Regrouping,
    described,
    document,
    plan,
    print_plan,
)
from app.commands.rings.regroup_steps import LaneChangelogs, Regroup
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.topics import missing
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import MissingTopicError
from ringfence_kafka.process.step_progress import Steps
from ringfence_kafka.wording import counted
from tables.codec import Meta


def regroup(settings: Settings, name: str, lanes: int, *, dry_run: bool, as_json: bool, yes: bool) -> int:
    """Change the number of lanes of an address. It can be repeated after any interruption.

    ``lanes``: new number; 0 = one lane for each partition of the input. A dry run prints the plan and its
    obstacles, and returns 1 if there are some.

    Raises:
        RegroupError: It is not possible; or workers run, or forwarded records are not judged yet.
        MissingTopicError: A topic does not exist.
        BrokerUnavailableError: The cluster does not answer.
    """
    address = settings.configured(name)
    say: Callable[[str], object] = (lambda _: None) if as_json else click.echo

    async def run(cluster: Cluster, progress: Steps) -> tuple[Regrouping, list[str], dict[int, int]]:
        verb = _Verb(settings, address, cluster, progress, say)
        return await verb.regroup(lanes, dry_run=dry_run, yes=yes)

    regrouping, obstacles, sizes = carry_out(settings, run, RegroupError)
    if as_json:
        click.echo(json.dumps(document(regrouping, obstacles, sizes, dry_run=dry_run), indent=2))
    return int(bool(obstacles))


class _Verb(OfflineChange):
    """Regrouping of one address, with its output."""

    async def regroup(
        self, lanes: int, *, dry_run: bool, yes: bool
    ) -> tuple[Regrouping, list[str], dict[int, int]]:
        """Regroup, or only check; return the plan, its obstacles, and the IDs in each written ring."""
        name = self._address.name
        self._progress.start_step(f"looking at the lanes of {name}")
        counts = await self._counts()
        metas = await newest_metas(self._cluster, self._changelog, range(counts[self._changelog]))
        regrouping = plan(self._address, counts[self._input], metas, lanes)
        running, left = ("", "") if regrouping.done else await self._find_activity(regrouping, metas)
        obstacles = [text for text in (running, left) if text]
        self._progress.end()
        nothing = f"{name} has {shown_lanes(lanes)}, and its rings fit: nothing to do"
        if dry_run:
            if regrouping.done:
                self._say(nothing)
            else:
                print_plan(regrouping, obstacles, self._say)
            return regrouping, obstacles, {}
        if left and not running and any(map(is_marked, metas.values())):
            # No worker can judge them while lanes are marked. Unmark the lanes, so that workers can open
            # them.
            await self._regroup(regrouping).unmark()
        if obstacles:
            raise RegroupError("\n".join(obstacles))
        if regrouping.done:
            await self._give_all(regrouping, counts)
            self._say(nothing)
            return regrouping, [], {}
        before = shown_lanes(regrouping.before or 0)
        confirmed(f"Write new rings for {name}, which has {before}, for {shown_lanes(lanes)}", yes=yes)
        sizes = await self._carry_out(regrouping, counts)
        self._progress.end()
        for lane, size in sizes.items():
            self._say(f"{described(regrouping, lane)}: {size:,} stay known")
        self._say(
            f"write lanes = {lanes} for {name} into the configuration, run 'ringfence topics check', and start the workers, all with this "
            "file"
        )
        return regrouping, [], sizes

    async def _counts(self) -> dict[str, int]:
        topics = [self._input, self._changelog, self._forward]
        counts = await self._cluster.topics.partition_counts(topics)
        for role, topic in (("input topic", self._input), ("changelog", self._changelog)):
            if topic not in counts:
                raise MissingTopicError(missing(role, self._address.name, topic))
        await require_journal(self._settings, self._cluster)
        return counts

    async def _find_activity(self, regrouping: Regrouping, metas: dict[int, Meta]) -> tuple[str, str]:
        """Return that workers run, and which forwarded records are not judged; empty = no obstacle."""
        advice = ", and a ring changes for all workers at once: stop all of them by SIGTERM"
        running = await running_workers(self._settings, self._cluster, advice)
        left = await self._forwarded_left(regrouping, metas)
        if left:
            left += (
                ": forwarded records are judged by the present lanes. Let workers with "
                f"{shown_lanes(regrouping.before or 0)} run until 'ringfence status' shows a lag of 0 while "
                "producers and bridges are stopped, stop them, and run this again"
            )
        return running, left

    async def _forwarded_left(self, regrouping: Regrouping, metas: dict[int, Meta]) -> str:
        """Return which forwarded records are not judged; empty = all are."""
        if regrouping.before == 1:
            return ""
        count = (await self._cluster.topics.partition_counts([self._forward])).get(self._forward, 0)
        for lane in range(min(regrouping.former.lanes, count)):
            if left := await self._unjudged(self._forward, lane, metas.get(lane)):
                return left
        return ""

    async def _carry_out(self, regrouping: Regrouping, counts: dict[str, int]) -> dict[int, int]:
        await self._give(self._changelog, counts, regrouping.wanted.lanes)
        work = self._regroup(regrouping)
        await work.mark()
        # From here on nothing changes. Records that came before the marks would wait forever, so check again.
        metas = await newest_metas(self._cluster, self._changelog, range(counts[self._changelog]))
        running, left = await self._find_activity(regrouping, metas)
        if (now := (await self._counts())[self._input]) != regrouping.partitions:
            left = (
                f"{self._input} has {counted(now, 'partition')} now, and the plan was for {regrouping.partitions}: run "
                "this again"
            )
        if left:
            await work.unmark()
            raise RegroupError(left)
        if running:
            raise worker_came(self._settings, RegroupError)
        await self._give_all(regrouping, counts)
        return await work.write(counts[self._changelog], await self._forwarded(regrouping, counts))

    def _regroup(self, regrouping: Regrouping) -> Regroup:
        changelogs = LaneChangelogs(self._settings, self._address, self._cluster)
        return Regroup(self._address, self._settings.app.id, regrouping, changelogs, self._progress)

    async def _give_all(self, regrouping: Regrouping, counts: dict[str, int]) -> None:
        lanes = regrouping.wanted.lanes
        await self._give(self._changelog, counts, lanes)
        if regrouping.after != 1 and self._forward in counts:
            await self._give(self._forward, counts, lanes)

    async def _forwarded(self, regrouping: Regrouping, counts: dict[str, int]) -> Forwarded | None:
        if self._forward not in counts:
            return None
        identity = await self._cluster.topics.identity(self._forward)
        lanes = range(min(regrouping.wanted.lanes, counts[self._forward]))
        ends = await asyncio.gather(
            *(self._cluster.offsets.high_watermark(self._forward, lane) for lane in lanes)
        )
        return Forwarded(self._forward, identity.topic_id, dict(zip(lanes, ends, strict=True)))
