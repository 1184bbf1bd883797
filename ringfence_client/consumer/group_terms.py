"""The terms that all members of one group must state alike: else messages would be handled by two rules.

Members state and compare them as in :mod:`ringfence_client.consumer.app_id_check`. The terms of the holders count.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from aiokafka.errors import KafkaError

from ringfence_kafka.admin.cluster import Cluster

log: Final = logging.getLogger("ringfence.consumer")

LOOK_LIMIT_S: Final = 5.0
STATED_KEY: Final = "terms of the member"
"""In the user data of a member. With blanks: no topic has such a name."""
REFUSED_KEY: Final = "terms of the group"
"""In the assignment of a refused member: the terms of the group."""

Terms = Mapping[str, Any]
"""Key of the configuration → value, as JSON gives it back."""


def stated(user_data: bytes | None) -> str | None:
    """Return the terms of the member that states this, as text that is equal for equal terms; None = it states none."""
    return _text(user_data, STATED_KEY)


def refused_by(user_data: bytes | None) -> Terms | None:
    """Return the terms of the group from the assignment of a refused member; None = it is not refused."""
    found = _text(user_data, REFUSED_KEY)
    return None if found is None else json.loads(found)


def refusal(terms: str) -> bytes:
    """Return the user data of a refused member's assignment."""
    return json.dumps({REFUSED_KEY: json.loads(terms)}).encode()


def differences(group: Terms, own: Terms) -> str:
    """Return each term that differs, with both values; empty = none. A term that one of the two does not state does not differ."""
    return "; ".join(
        f"{key} = {json.dumps(group[key])} in the group and {json.dumps(own[key])} here"
        for key in own
        if key in group and group[key] != own[key]
    )


async def unlike(cluster: Cluster, topic: str, own: Terms) -> str:
    """Return how the group's terms for a topic differ from ours, before we join it.

    Empty also if the group does not answer: the assigning member refuses then.
    """
    for user_data in await readers(cluster, topic):
        text = stated(user_data)
        if text is not None and (found := differences(json.loads(text), own)):
            return found
    return ""


def elected(stated: Mapping[str, str | None], owned: Mapping[str, Mapping[int, int]]) -> str | None:
    """Return what the group goes by: the ``app.id``, or the terms as text; None = no member states any.

    They come from the members that hold most partitions, then from those that were assigned most, so a newcomer does not push out a holder.

    Args:
        stated: User data of each member that reads a topic.
        owned: The fencing tokens by partition that each member states.
    """
    weights: dict[str, tuple[int, int]] = {}
    for member, said in stated.items():
        if said is not None:
            held, given = weights.get(said, (0, 0))
            tokens = owned[member].values()
            weights[said] = held + sum(token > 0 for token in tokens), given + len(tokens)
    return max(sorted(weights), key=weights.__getitem__, default=None)


async def readers(cluster: Cluster, topic: str) -> list[bytes | None]:
    """Return the user data of each member of the cluster's group that reads a topic; empty if the group does not answer."""
    try:
        async with asyncio.timeout(LOOK_LIMIT_S):
            members = await cluster.groups.static_members()
    except (KafkaError, OSError, TimeoutError, NotImplementedError) as error:
        log.debug("the members of %s cannot be asked now: %r", cluster.group_id, error)
        return []
    said = (member.metadata for member in members)
    return [item.user_data for item in said if item is not None and topic in item.subscription]


def value_in(user_data: bytes | None, key: str) -> Any:
    """Return a value of a member's user data; None = it is not there, or cannot be read."""
    try:
        return json.loads(user_data or b"{}").get(key)
    except (ValueError, AttributeError):
        return None


def _text(user_data: bytes | None, key: str) -> str | None:
    found = value_in(user_data, key)
    return json.dumps(found, sort_keys=True) if isinstance(found, dict) else None
