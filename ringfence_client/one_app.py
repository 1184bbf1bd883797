"""The consumers of one group must have one ``app.id``.

Lease, fencing token and transactional ID of a partition go by it (:mod:`ringfence_kafka.wire`), and Kafka's group does not: two who share
partitions, and not leases, would run one message at once under one token. Members say their ``app.id`` as they join. Who comes looks at the
members first, and whoever shares out gives nothing to those of another ``app.id``: that is for newcomers that looked at the same moment.
"""

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Final

from aiokafka.errors import KafkaError

from ringfence_kafka.cluster import Cluster
from ringfence_kafka.errors import ConfigurationError

log: Final = logging.getLogger("ringfence.consumer")

LOOK_LIMIT_S: Final = 5.0

APP_KEY: Final = "app.id of the consumer"
"""In what a member says, beside what it has by topic. With blanks: no topic is called so. Members of before say none."""
REFUSED_KEY: Final = "app.id of the group"
"""In what a member is given: it is not this one's, which gets nothing."""


def app_of(user_data: bytes | None) -> str | None:
    """The ``app.id`` of who says this; None = it does not tell, as those of before."""
    return _text(user_data, APP_KEY)


def refused_by(user_data: bytes | None) -> str | None:
    """The ``app.id`` that the group goes by, where the member that is told this has another one."""
    return _text(user_data, REFUSED_KEY)


def refusal(app_id: str) -> bytes:
    """What a member of another ``app.id`` is told."""
    return json.dumps({REFUSED_KEY: app_id}).encode()


def elected(apps: Mapping[str, str | None], owned: Mapping[str, Mapping[int, int]]) -> str | None:
    """Of the members that read a topic: whose ``app.id`` the group goes by; None = nobody tells one. Also used for terms.

    Args:
        apps: The ``app.id`` of each, or its terms as text.
        owned: Fencing tokens by partition, of what each says that it has.

    Returns:
        That of those who hold most, then of those who were given most: who runs is not thrown out by who comes.
    """
    weights: dict[str, tuple[int, int]] = {}
    for member, app_id in apps.items():
        if app_id is not None:
            held, given = weights.get(app_id, (0, 0))
            tokens = owned[member].values()
            weights[app_id] = held + sum(token > 0 for token in tokens), given + len(tokens)
    return max(sorted(weights), key=weights.__getitem__, default=None)


async def require(cluster: Cluster, topic: str, app_id: str) -> None:
    """Before we join the cluster's group with our ``app_id``: who runs there sees no rebalance. Where it cannot be told, joining tells.

    Raises:
        ConfigurationError: a member that reads the topic has another ``app.id``.
    """
    try:
        async with asyncio.timeout(LOOK_LIMIT_S):
            members = await cluster.static_members()
    except (KafkaError, OSError, TimeoutError, NotImplementedError) as error:
        log.debug("the members of %s cannot be told now: %r", cluster.group_id, error)
        return
    for each in members:
        said = each.metadata
        if said is not None and topic in said.subscription:
            other = app_of(said.user_data)
            if other is not None and other != app_id:
                raise ConfigurationError(fault(cluster.group_id, topic, app_id, other))


def fault(group: str, topic: str, app_id: str, other: str) -> str:
    """Why a consumer does not run."""
    return (
        f"the consumer group {group} has consumers of {topic} with app.id = {other}, and this one has app.id = {app_id}: they would "
        "not see each other's leases, and messages would run twice at once; give all consumers of a group the same app.id, or this one "
        "another consumer group; to change app.id, end all of them first"
    )


def _text(user_data: bytes | None, key: str) -> str | None:
    try:
        found = json.loads(user_data or b"{}").get(key)
    except (ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None
