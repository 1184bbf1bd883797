"""Values that all members of one group must share: their ``app.id``, and terms without which two rules would apply to its messages.

A partition's lease, fencing token and transactional ID depend on ``app.id``, and Kafka's group does not. Two consumers with shared partitions
and separate leases would run one message at once under one token. Members state their values when they join. A newcomer looks at the
members first. If two look at the same moment, the assigning member refuses one of them. The values of the holders count.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from aiokafka.errors import KafkaError

from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.errors import ConfigurationError

log: Final = logging.getLogger("ringfence.consumer")

LOOK_LIMIT_S: Final = 5.0

Terms = Mapping[str, Any]
"""Values by configuration key, as JSON returns them."""


class Statement(NamedTuple):
    """A value that members state. Its keys have spaces, because names of topics do not."""

    key: str
    """Key in a member's user data, beside its topics."""
    refused_key: str
    """Key of the group's value, in a refused member's assignment."""
    kind: type

    def of(self, user_data: bytes | None) -> str | None:
        """Return what a member states, as a text that is equal for equal values; None = nothing."""
        return self._text(user_data, self.key)

    def refused_by(self, user_data: bytes | None) -> Any:
        """Return the group's value from a refused member's assignment; None = not refused."""
        text = self._text(user_data, self.refused_key)
        return None if text is None else json.loads(text)

    def refusal(self, text: str) -> bytes:
        """Return the user data of a refused member's assignment."""
        return json.dumps({self.refused_key: json.loads(text)}).encode()

    def _text(self, user_data: bytes | None, key: str) -> str | None:
        try:
            found = json.loads(user_data or b"{}").get(key)
        except (ValueError, AttributeError):
            return None
        return json.dumps(found, sort_keys=True) if isinstance(found, self.kind) else None


APP_ID: Final = Statement("app.id of the consumer", "app.id of the group", str)
TERMS: Final = Statement("terms of the member", "terms of the group", dict)


def differences(group: Terms, own: Terms) -> str:
    """Return each differing term with both values; empty = no difference. Terms that one side does not state are ignored."""
    return "; ".join(
        f"{key} = {json.dumps(group[key])} in the group and {json.dumps(own[key])} here"
        for key in own
        if key in group and group[key] != own[key]
    )


async def unlike(cluster: Cluster, topic: str, own: Terms) -> str:
    """Return the difference between the group's terms for a topic and ours, before this consumer joins.

    Empty also if the group does not answer: then the assigning member refuses.
    """
    found = (differences(json.loads(text), own) for text in await _stated(TERMS, cluster, topic))
    return next(filter(None, found), "")


async def require_app_id(cluster: Cluster, topic: str, app_id: str) -> None:
    """Refuse to join the group if a member that reads the topic has another ``app.id``. Members that run see no rebalance."""
    for other in map(json.loads, await _stated(APP_ID, cluster, topic)):
        if other != app_id:
            raise ConfigurationError(app_id_fault(cluster.group_id, topic, app_id, other))


def app_id_fault(group: str, topic: str, app_id: str, other: str) -> str:
    """Return the reason why a consumer with another ``app.id`` than its group does not run."""
    return (
        f"the consumer group {group} has consumers of {topic} with app.id = {other}, and this one has app.id = {app_id}: they would "
        "not see each other's leases, and messages would run twice at once; give all consumers of a group the same app.id, or this one "
        "another consumer group; to change app.id, end all of them first"
    )


def elected(stated: Mapping[str, str | None], owned: Mapping[str, Mapping[int, int]]) -> str | None:
    """Return the group's value of a :class:`Statement`, as text; None = no member states any. ``owned``: fencing tokens that each member states.

    It is that of the members with most held partitions, then with most assigned ones. A newcomer therefore does not push out a holder.
    """
    weights: dict[str, tuple[int, int]] = {}
    for member, said in stated.items():
        if said is not None:
            held, given = weights.get(said, (0, 0))
            tokens = owned[member].values()
            weights[said] = held + sum(token > 0 for token in tokens), given + len(tokens)
    return max(sorted(weights), key=weights.__getitem__, default=None)


async def _stated(statement: Statement, cluster: Cluster, topic: str) -> list[str]:
    """Return what members of the group that read a topic state; empty if the group does not answer."""
    try:
        async with asyncio.timeout(LOOK_LIMIT_S):
            members = await cluster.groups.static_members()
    except (KafkaError, OSError, TimeoutError) as error:
        log.debug("the members of %s cannot be asked now: %r", cluster.group_id, error)
        return []
    said = (member.metadata for member in members)
    readers = (item for item in said if item is not None and topic in item.subscription)
    return [text for item in readers if (text := statement.of(item.user_data)) is not None]
