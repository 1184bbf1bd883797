"""Admission of the bridges of a strict connection: checks at their start whether they may run with the configured members."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from aiokafka.errors import KafkaError, UnknownMemberIdError

from agents.bridge.members import Adopt, MemberPosition, MemberPositions, Refuse, Run, decide, former
from agents.bridge.offsets import AT_REST, NOT_BEGUN, Map, OffsetMetadata, decode, encode
from agents.bridge.plan import Plan, Share
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.errors import BrokerUnavailableError, ConfigurationError, said
from ringfence_kafka.groups.committed_offsets import Committed
from ringfence_kafka.protocol.hop import as_printed

log: Final = logging.getLogger("ringfence.bridge")

TRIES: Final = 5
"""Number of attempts, because another process may do the same at the same time."""
AGAIN_S: Final = 1.0
LOST_MEMBER: Final = (
    "if the cluster of a member is lost for good, do not change offsets: another cluster replaces it, see "
    "docs/bridges.md, 'A member that is lost for good'"
)


async def _join(plan: Plan, share: Share, *, drain: bool) -> Map:
    topic = plan.source_topic
    async with Cluster(plan.source, plan.group) as cluster:
        identity = await cluster.topics.identity(topic)
        numbers = range(identity.partitions)
        starts = dict(
            zip(
                numbers,
                await asyncio.gather(*(cluster.offsets.log_start(topic, number) for number in numbers)),
                strict=True,
            )
        )
    topic_id = as_printed(identity.topic_id)
    found = {
        member: await _committed_positions(plan, share.group(member), topic_id, starts)
        for member in share.members
    }
    top = former(share.members, found)
    for member in () if top is None else top.members:
        if member not in found:
            found[member] = await _committed_positions(plan, share.group(member), topic_id, starts)
    if drain and top is not None:
        _require_reachable(share, top)
        return top
    decision = decide(share.members, found, starts)
    if isinstance(decision, Refuse):
        raise ConfigurationError(_refusal(share, topic, decision, top))
    if isinstance(decision, Run):
        return decision.map
    await _adopt(plan, [share.group(member) for member in share.members], decision, topic_id)
    return decision.map


async def _committed_positions(
    plan: Plan, group: str, topic_id: str, starts: Mapping[int, int]
) -> MemberPositions:
    async with Cluster(plan.source, group) as cluster:
        await cluster.groups.await_coordinator()
        noted = await asyncio.gather(
            *(cluster.groups.committed(plan.source_topic, start) for start in starts)
        )
    return {
        number: member_position(item, topic_id, starts[number])
        for number, item in zip(starts, noted, strict=True)
        if item is not None
    }


def member_position(committed: Committed, topic_id: str, start: int) -> MemberPosition:
    """Return the position in a commit. ``topic_id`` and ``start`` describe the topic's present log.

    A commit for a deleted topic only provides the members.
    """
    note = decode(committed.note)
    if note is None:
        return MemberPosition(committed.offset, None, "")
    if note.topic_id != topic_id:
        return MemberPosition(start, note.map, AT_REST)
    return MemberPosition(committed.offset, note.map, note.still)


async def _adopt(plan: Plan, wanted: Sequence[str], decision: Adopt, topic_id: str) -> None:
    """Commit for all groups before any bridge starts. A process that finds some commits done then knows that nothing was forwarded yet."""
    log.info(
        "bridges of %s: %d members from here on: %s",
        plan.source_topic, len(decision.map.members), ", ".join(decision.map.members),
    )  # fmt: skip
    for group in wanted:
        async with Cluster(plan.source, group) as cluster:
            offsets = {}
            for number, offset in decision.offsets.items():
                before = await cluster.groups.committed(plan.source_topic, number)
                known = None if before is None else decode(before.note)
                note = (
                    known
                    if known is not None and known.topic_id == topic_id
                    else OffsetMetadata(topic_id, len(decision.offsets))
                )
                offsets[number] = Committed(offset, encode(replace(note, map=decision.map, still=NOT_BEGUN)))
            if offsets:
                await cluster.groups.commit(plan.source_topic, offsets)


def _require_reachable(share: Share, top: Map) -> None:
    """Raise ConfigurationError if a former member is missing in the configuration."""
    gone = [member for member in top.members if member not in share.members]
    if gone:
        raise ConfigurationError(
            f"cluster connection {share.connection}: --drain needs the members that it ran with, and "
            f"{', '.join(gone)} was removed from the configuration: add it again, drain, then remove it; {LOST_MEMBER}"
        )


def _refusal(share: Share, topic: str, refused: Refuse, top: Map | None) -> str:
    stand = ", ".join(f"{member} at {'none' if at is None else at}" for member, at in refused.offsets.items())
    why = (
        "have different offsets"
        if len(set(refused.offsets.values())) > 1
        else "did not stop cleanly and may have sent more than they committed"
    )
    before = "" if top is None or top.members == share.members else f" ran with {', '.join(top.members)} and"
    return (
        f"cluster connection {share.connection}:{before} is to run with {', '.join(share.members)}, and its "
        f"bridges {why} at {topic}/{refused.partition} ({stand}): messages between them would go to no "
        f"member or to two. Stop all its processes, run 'ringfence bridge {share.connection} --drain' with "
        f"the former members, then start it with the new ones; {LOST_MEMBER}"
    )


class Permit:
    """Members for the bridges of one connection and address in this process. With ``drain`` they finish up to a common offset."""

    def __init__(self, plan: Plan, *, drain: bool) -> None:
        """Prepare the query. ``plan``: plan of one of these bridges."""
        self._plan = plan
        self._drain = drain
        self._map: Map | None = None
        self._asking = asyncio.Lock()

    async def get(self) -> Map:
        """Return the members. May be called again after an error.

        Raises:
            ConfigurationError: the members changed and the bridges have different offsets.
            BrokerUnavailableError: the source does not answer.
        """
        async with self._asking:
            if self._map is None:
                self._map = await self._ask()
            return self._map

    async def _ask(self) -> Map:
        share = self._plan.share
        if share is None:
            raise TypeError(self._plan.name)
        for attempt in range(1, TRIES + 1):
            try:
                return await _join(self._plan, share, drain=self._drain)
            except UnknownMemberIdError as error:
                if attempt == TRIES:
                    raise ConfigurationError(
                        f"cluster connection {share.connection}: its members were changed, and other processes still run it: stop them all, then "
                        "start it again"
                    ) from error
                await asyncio.sleep(AGAIN_S)
            except (KafkaError, OSError, TimeoutError) as error:
                raise BrokerUnavailableError(f"the source does not answer ({said(error)})") from error
        raise AssertionError("a try ends otherwise")

    def forget(self) -> None:
        """Discard the result, because other processes changed the members."""
        self._map = None
