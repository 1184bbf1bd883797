"""Checks whether a lane may open: its topics, access rights, partition counts and rules."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Final

from agents.lane.assignment import Partition
from agents.lane.errors import QUESTION_LIMIT_S, LaneRefusedError, PartitionsChangedError
from agents.lane.opening.identity import LaneIdentity
from agents.lane.opening.topic_facts import TopicFacts, ask_facts
from agents.rules.agreement import Agreement
from agents.rules.lane_rules import rules_fault, rules_of
from agents.topic_checks.changelog import newest_meta, other_lanes_faults
from agents.topic_checks.topics import count_faults
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.errors import ForeignChangelogError
from ringfence_kafka.wording import first_of
from tables.codec import FormatError, Meta
from tables.restore import require_own

MISSING_SHOWN: Final = 8
"""Maximum number of partitions that a refusal names."""


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
        """Query the lane's topics. Raises as :func:`agents.lane.opening.topic_facts.ask_facts`."""
        async with asyncio.timeout(QUESTION_LIMIT_S):
            return await ask_facts(self._cluster, self._lane, self._denied)

    async def check_before_fence(self, facts: TopicFacts) -> None:
        """Check without a fence whether the reason of the last refusal persists: a fence would disturb the lane's owner.

        Raises:
            LaneRefusedError: it persists.
        """
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
        """Check that a lane without a meta record is new. Its partitions may have belonged to other lanes.

        Raises:
            LaneRefusedError: other lanes of the address started with another number of lanes.
        """
        lane = self._lane
        async with asyncio.timeout(QUESTION_LIMIT_S):
            faults = await other_lanes_faults(
                self._cluster, lane.address, lane.changelog, facts.counts[lane.changelog]
            )
        if faults:
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
