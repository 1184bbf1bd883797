"""Assignment of partitions to the members of a consumer group: balanced and sticky.

Members state their partitions when they join, and one of them assigns (KIP-54). aiokafka's default assigns all partitions again. Its sticky
assignor remembers a process, not a consumer. Two members may state the same partition: one of them was suspended or cut off, and woke. The
fencing token grows with each holder, so it shows the last one.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from ringfence_client.consumer.group_terms import APP_ID, TERMS, Terms, elected
from ringfence_kafka.groups.balanced_sticky import Unit, UnitPartition, balanced_sticky

_VERSION: Final = 0
"""Version of Kafka's format."""
_TOPIC: Final = "topic"

Owned = Mapping[int, int]
"""Fencing tokens by partition; 0 = assigned but not held yet."""


def share(partitions: Iterable[int], owned: Mapping[str, Owned]) -> dict[str, list[int]]:
    """Assign the partitions of one topic, ascending. Unheld partitions move first, because no handler runs for them. Pure.

    ``owned``: tokens by partition that each member states; at least one member.
    """
    latest: dict[int, tuple[int, str]] = {}
    for member, tokens in owned.items():
        for number, token in tokens.items():
            latest[number] = max(latest.get(number, (token, member)), (token, member))
    held: dict[str, list[UnitPartition]] = {member: [] for member in sorted(owned)}
    for number, (_, member) in latest.items():
        held[member].append(UnitPartition(_TOPIC, number))

    def rank(member: str, item: UnitPartition) -> tuple[bool, int]:
        return not owned[member].get(item.partition), item.partition

    assigned = balanced_sticky({_TOPIC: Unit(sorted(partitions), list(held))}, held, rank)
    return {member: [item.partition for item in items] for member, items in assigned.items()}


class KeepingAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """aiokafka's interface to :func:`share`, one instance for each consumer."""

    name = "ringfence-keep"

    def __init__(
        self,
        topic: str,
        owned: Callable[[], Owned],
        app_id: str | None = None,
        refused: Callable[[str], None] = lambda _: None,
        stated: Terms | None = None,
        unlike: Callable[[Terms], None] = lambda _: None,
    ) -> None:
        """Create an assignor. ``owned`` returns the fencing tokens of this consumer's partitions when it joins.

        ``refused`` is called with the group's ``app.id``, and ``unlike`` with its terms, if they differ from this member's.
        """
        self._topic = topic
        self._owned = owned
        self._app_id = app_id
        self._refused = refused
        self._stated = stated
        self._unlike = unlike

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return this member's user data for the join request."""
        said: dict[str, Any] = {self._topic: {str(number): token for number, token in self._owned().items()}}
        if self._app_id is not None:
            said[APP_ID.key] = self._app_id
        if self._stated is not None:
            said[TERMS.key] = dict(self._stated)
        return ConsumerProtocolMemberMetadata(_VERSION, list(topics), json.dumps(said).encode())

    def assign(
        self, cluster: Any, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Assign for all members. Each topic is assigned separately, because members may read different topics."""
        found: dict[str, list[tuple[str, list[int]]]] = {member: [] for member in members}
        told: dict[str, bytes] = {}
        for topic in sorted({topic for member in members.values() for topic in member.subscription}):
            owned = {
                member: _said(item.user_data, topic)
                for member, item in members.items()
                if topic in item.subscription and is_ours(topic, item.user_data or b"")
            }
            if not owned:
                continue  # other programs with this assignor's name get no partitions
            for statement in (APP_ID, TERMS):
                said = {member: statement.of(members[member].user_data) for member in owned}
                chosen = elected(said, owned)
                for member in [name for name in owned if said[name] != chosen]:
                    told[member] = statement.refusal(str(chosen))
                    del owned[member]
            for member, partitions in share(cluster.partitions_for_topic(topic) or (), owned).items():
                if partitions:
                    found[member].append((topic, partitions))
        return {
            member: ConsumerProtocolMemberAssignment(_VERSION, items, told.get(member, b""))
            for member, items in found.items()
        }

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Report a refusal to this consumer."""
        if (app_id := APP_ID.refused_by(assignment.user_data)) is not None:
            self._refused(app_id)
        if (others := TERMS.refused_by(assignment.user_data)) is not None:
            self._unlike(others)


def is_ours(topic: str, user_data: bytes) -> bool:
    """Return whether a member with this user data is a consumer or a bridge of Ringfence."""
    try:
        said = json.loads(user_data or b"null")
    except ValueError:
        return False
    return isinstance(said, dict) and (topic in said or APP_ID.key in said)


def _said(user_data: bytes | None, topic: str) -> dict[int, int]:
    """Return the tokens by partition that a member states; empty if they cannot be read."""
    try:
        return {
            int(item): int(token) for item, token in json.loads(user_data or b"{}").get(topic, {}).items()
        }
    except (ValueError, AttributeError, TypeError):
        return {}
