"""Terms that all members of one group must share: otherwise two rules would apply to its messages.

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
"""Key in a member's user data. It has spaces, because names of topics do not."""
REFUSED_KEY: Final = "terms of the group"
"""Key in a refused member's assignment. Its value is the terms of the group."""

Terms = Mapping[str, Any]
"""Values by configuration key, as JSON returns them."""


def stated(user_data: bytes | None) -> str | None:
    """Return a member's terms as text that is equal for equal terms; None = the member states no terms."""
    return _text(user_data, STATED_KEY)


def refused_by(user_data: bytes | None) -> Terms | None:
    """Return the terms of the group from a refused member's assignment; None = not refused."""
    found = _text(user_data, REFUSED_KEY)
    return None if found is None else json.loads(found)


def refusal(terms: str) -> bytes:
    """Return the user data of a refused member's assignment."""
    return json.dumps({REFUSED_KEY: json.loads(terms)}).encode()


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
    for user_data in await readers(cluster, topic):
        text = stated(user_data)
        if text is not None and (found := differences(json.loads(text), own)):
            return found
    return ""


def elected(stated: Mapping[str, str | None], owned: Mapping[str, Mapping[int, int]]) -> str | None:
    """Return the group's ``app.id``, or its terms as text; None = no member states any.

    It is that of the members with most held partitions, then with most assigned ones. A newcomer therefore does not push out a holder.

    Args:
        stated: ``app.id`` or terms that each member states; None = the member states none.
        owned: Fencing tokens by partition that each member states.
    """
    weights: dict[str, tuple[int, int]] = {}
    for member, said in stated.items():
        if said is not None:
            held, given = weights.get(said, (0, 0))
            tokens = owned[member].values()
            weights[said] = held + sum(token > 0 for token in tokens), given + len(tokens)
    return max(sorted(weights), key=weights.__getitem__, default=None)


async def readers(cluster: Cluster, topic: str) -> list[bytes | None]:
    """Return the user data of each member of the group that reads a topic; empty if the group does not answer."""
    try:
        async with asyncio.timeout(LOOK_LIMIT_S):
            members = await cluster.groups.static_members()
    except (KafkaError, OSError, TimeoutError) as error:
        log.debug("the members of %s cannot be asked now: %r", cluster.group_id, error)
        return []
    said = (member.metadata for member in members)
    return [item.user_data for item in said if item is not None and topic in item.subscription]


def value_in(user_data: bytes | None, key: str) -> Any:
    """Return a value of a member's user data; None = missing or unreadable."""
    try:
        return json.loads(user_data or b"{}").get(key)
    except (ValueError, AttributeError):
        return None


def _text(user_data: bytes | None, key: str) -> str | None:
    found = value_in(user_data, key)
    return json.dumps(found, sort_keys=True) if isinstance(found, dict) else None
