"""Checks whether a lane may open: its topics, access rights, partition counts and rules; and facts about its topics."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from agents.lane.assignment import Partition
from agents.lane.errors import QUESTION_LIMIT_S, LaneRefusedError, PartitionsChangedError, TopicMissingError
from agents.lane.opening.identity import LaneIdentity
from agents.output.topic_batches import Outputs
from agents.rules.agreement import Agreement
from agents.rules.lane_rules import rules_fault, rules_of
from agents.topic_checks.changelog import newest_meta, newest_metas
from agents.topic_checks.lanes import lane_faults, live
from agents.topic_checks.topics import count_faults, missing_topics, topic_faults
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.errors import ForeignChangelogError
from ringfence_kafka.wording import first_of
from tables.codec import FormatError, Meta
from tables.restore import require_own

MISSING_SHOWN: Final = 8
"""Maximum number of partitions that a refusal names."""


_DAY_MS: Final = 24 * 3600 * 1000
AGED_SHARE: Final = 0.05
"""Share of an output's retention. A record that is older than this when it is written would be kept for a much shorter time."""
AGED_MS_MIN: Final = 60_000


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Facts about topics that exist and fit the lane."""

    outputs: Outputs
    delete_retention_s: float
    """Time that a tombstone stays in the changelog, in seconds."""
    topic_ids: dict[str, str]
    """Kafka's IDs of the input topic, the forward topic if there is one, and the changelog."""

    @property
    def counts(self) -> dict[str, int]:
        """Partition counts by topic."""
        return self.outputs.partitions


class LaneChecks:
    """Checks of one lane, before and after its fence."""

    def __init__(
        self, lane: LaneIdentity, cluster: Cluster, agreement: Agreement, denied: Callable[[], Sequence[str]]
    ) -> None:
        """Create the checks. ``denied``: returns missing access rights, one line each."""
        self.rules = rules_of(lane.address, lane.targets)
        self.rules_fault = ""
        """Difference between the lane's rules and this worker's; empty = there is none, or they are not compared yet."""
        self._lane = lane
        self._cluster = cluster
        self._agreement = agreement
        self._denied = denied

    async def facts(self) -> TopicFacts:
        """Query the lane's topics.

        Raises TopicMissingError if one does not exist, and LaneRefusedError if one does not fit, or a right is missing.
        """
        lane, address, topics = self._lane, self._lane.address, self._cluster.topics
        accepted = [target.accepted_topic for target in lane.targets]
        async with asyncio.timeout(QUESTION_LIMIT_S):
            described = await topics.describe([*address.topics(lane.app_id).values(), *accepted])
            if absent := missing_topics(lane.app_id, address, described, lane.targets):
                raise TopicMissingError("; ".join(absent))
            existing = described.topics
            if faults := [*topic_faults(lane.app_id, address, existing, lane.targets), *self._denied()]:
                raise LaneRefusedError("; ".join(faults))
            forward = [lane.forward_topic] if address.forwards else []
            topic_ids = await topics.ids([address.input_topic, *forward, lane.changelog])
        outputs = Outputs(
            {name: topic.partitions for name, topic in existing.items()},
            {name: topic.message_bytes_max for name, topic in existing.items()},
            {name: max(AGED_MS_MIN, AGED_SHARE * topic.retention_ms) for name, topic in existing.items()},
        )
        delete_retention_s = existing[lane.changelog].number("delete.retention.ms", _DAY_MS) / 1000
        return TopicFacts(outputs, delete_retention_s, topic_ids)

    async def check_before_fence(self, facts: TopicFacts) -> None:
        """Raise LaneRefusedError if the reason of the last refusal persists. A fence would disturb the lane's owner."""
        lane = self._lane
        async with asyncio.timeout(QUESTION_LIMIT_S):
            meta = await newest_meta(self._cluster, lane.changelog, lane.number)
        if meta is None:
            await self.require_no_other_lanes(facts)
            return
        try:
            require_own(meta, lane.app_id, lane.address.name, f"{lane.changelog}/{lane.number}")
        except ForeignChangelogError as error:
            raise self.refusal(error) from error
        self.require_counts(facts, meta)
        await self.require_rules(meta)

    def refusal(self, error: Exception) -> LaneRefusedError:
        """Return the refusal for a changelog that cannot be used."""
        if isinstance(error, FormatError):
            return LaneRefusedError(
                f"{self._lane.changelog}/{self._lane.number}: {error}: run the version that wrote it. The lane's messages wait, and "
                "none is lost"
            )
        return LaneRefusedError(str(error))

    def require_counts(self, facts: TopicFacts, meta: Meta | None) -> None:
        """Raise LaneRefusedError if the number of lanes or partitions differs from the changelog's record."""
        if meta is None:
            return
        if faults := count_faults(self._lane.address, facts.counts, [meta], self._lane.targets):
            raise LaneRefusedError("; ".join(faults))

    async def require_no_other_lanes(self, facts: TopicFacts) -> None:
        """Raise LaneRefusedError if a lane without a meta record is not new: its partitions belonged to other lanes of the address."""
        lane = self._lane
        async with asyncio.timeout(QUESTION_LIMIT_S):
            metas = await newest_metas(self._cluster, lane.changelog, range(facts.counts[lane.changelog]))
        if faults := lane_faults(lane.address, live(metas).values()):
            raise LaneRefusedError("; ".join(faults))

    def require_all_inputs(self, facts: TopicFacts, given: Collection[Partition]) -> None:
        """Check that this worker has all inputs of the lane.

        Raises:
            LaneRefusedError: another worker may have some of them.
            PartitionsChangedError: the group assigned partitions that did not exist at the latest query.
        """
        lane = self._lane
        due = set(lane.inputs(facts.counts[lane.address.input_topic]))
        if missing := sorted(due.difference(given)):
            places = first_of([f"{topic}/{partition}" for topic, partition in missing], MISSING_SHOWN)
            raise LaneRefusedError(
                f"the group did not assign {places} to this worker, and the lane needs them too. New "
                f"partitions are assigned within a minute. Otherwise run all workers of {lane.app_id} with "
                "the same addresses"
            )
        if not due.issuperset(given):
            raise PartitionsChangedError(f"{lane.address.input_topic} has more partitions now")

    async def require_rules(self, meta: Meta | None) -> None:
        """Check this worker's rules against those in the meta record, or, without a record, against those of all live workers."""
        recorded = meta.rules if meta is not None else {}
        name = self._lane.address.name
        fault = rules_fault(name, recorded, self.rules)
        if not recorded:
            fault = await self._agreement.unlike_rules(name, self.rules)
        self.rules_fault = fault or ""
        if fault is not None:
            raise LaneRefusedError(fault)
