"""Whether a lane may open: its topics, rights, partition counts and rules."""

import asyncio
from collections.abc import Callable, Sequence

from agents.lane.errors import QUESTION_LIMIT_S, LaneRefusedError
from agents.lane.opening.identity import LaneIdentity
from agents.lane.opening.topic_facts import TopicFacts, ask_facts
from agents.rules.agreement import Agreement
from agents.rules.lane_rules import rules_fault, rules_of
from agents.topic_checks.changelog import newest_meta
from agents.topic_checks.topics import count_faults
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.errors import ForeignChangelogError
from tables.codec import FormatError, Meta
from tables.restore import require_own


class LaneChecks:
    """Checks one lane, before and after its fence."""

    def __init__(
        self, lane: LaneIdentity, cluster: Cluster, agreement: Agreement, denied: Callable[[], Sequence[str]]
    ) -> None:
        """``denied``: rights that are known to be missing, a line each."""
        self.rules = rules_of(lane.address, lane.targets)
        self.rules_fault = ""
        """How the lane's rules differ from this worker's; empty = they do not, or it is not known yet."""
        self._lane = lane
        self._cluster = cluster
        self._agreement = agreement
        self._denied = denied

    async def facts(self) -> TopicFacts:
        """Ask about the lane's topics. Raises as :func:`agents.lane.opening.topic_facts.ask_facts`."""
        async with asyncio.timeout(QUESTION_LIMIT_S):
            return await ask_facts(self._cluster, self._lane, self._denied)

    async def look_before_fence(self, facts: TopicFacts) -> None:
        """Ask again, without a fence, about what kept the lane from opening: a fence would disturb its owner.

        Raises:
            LaneRefusedError: it is still there.
        """
        lane = self._lane
        async with asyncio.timeout(QUESTION_LIMIT_S):
            meta = await newest_meta(self._cluster, lane.changelog, lane.partition)
        if meta is None:
            return
        try:
            require_own(meta, lane.app_id, lane.address.name, f"{lane.changelog}/{lane.partition}")
        except ForeignChangelogError as error:
            raise self.refusal(error) from error
        self.require_counts(facts, meta)
        await self.require_rules(meta)

    def refusal(self, error: Exception) -> LaneRefusedError:
        """Return why a changelog that cannot be used refuses the lane."""
        if isinstance(error, FormatError):
            return LaneRefusedError(
                f"{self._lane.changelog}/{self._lane.partition}: {error}: run the version that wrote it. The lane's messages wait, and "
                "none is lost"
            )
        return LaneRefusedError(str(error))

    def require_counts(self, facts: TopicFacts, meta: Meta | None) -> None:
        """Raise LaneRefusedError if a topic has another partition count than the changelog says."""
        faults = (
            [] if meta is None else count_faults(self._lane.address, facts.counts, [meta], self._lane.targets)
        )
        if faults:
            raise LaneRefusedError("; ".join(faults))

    async def require_rules(self, meta: Meta | None) -> None:
        """Rules that the lane has recorded decide; before that all live workers must state the same."""
        recorded = meta.rules if meta is not None else {}
        name = self._lane.address.name
        fault = rules_fault(name, recorded, self.rules)
        if not recorded:
            fault = await self._agreement.unlike_rules(name, self.rules)
        self.rules_fault = fault or ""
        if fault is not None:
            raise LaneRefusedError(fault)
