"""The consumers of one group must have one ``app.id``.

A partition's lease, fencing token and transactional ID depend on it, and Kafka's group does not. Two consumers with shared partitions and
separate leases would run one message at once under one token. Members state it when they join. A newcomer looks at the members first. If
two look at the same moment, the assigning member refuses one of them.
"""

import json
from typing import Final

from ringfence_client.consumer import group_terms
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.errors import ConfigurationError

APP_KEY: Final = "app.id of the consumer"
"""Key in a member's user data, beside its topics. It has spaces, because names of topics do not."""
REFUSED_KEY: Final = "app.id of the group"
"""Key in a refused member's assignment. Its value is the group's ``app.id``."""


def app_of(user_data: bytes | None) -> str | None:
    """Return the ``app.id`` that a member states; None = the member states none."""
    return _text(user_data, APP_KEY)


def refused_by(user_data: bytes | None) -> str | None:
    """Return the group's ``app.id`` from a refused member's assignment; None = not refused."""
    return _text(user_data, REFUSED_KEY)


def refusal(app_id: str) -> bytes:
    """Return the user data of a refused member's assignment."""
    return json.dumps({REFUSED_KEY: app_id}).encode()


async def require(cluster: Cluster, topic: str, app_id: str) -> None:
    """Refuse to join the group if a member that reads the topic has another ``app.id``. Members that run see no rebalance.

    Raises:
        ConfigurationError: A member has another ``app.id``.
    """
    for user_data in await group_terms.readers(cluster, topic):
        other = app_of(user_data)
        if other is not None and other != app_id:
            raise ConfigurationError(fault(cluster.group_id, topic, app_id, other))


def fault(group: str, topic: str, app_id: str, other: str) -> str:
    """Return the reason why a consumer does not run."""
    return (
        f"the consumer group {group} has consumers of {topic} with app.id = {other}, and this one has app.id = {app_id}: they would "
        "not see each other's leases, and messages would run twice at once; give all consumers of a group the same app.id, or this one "
        "another consumer group; to change app.id, end all of them first"
    )


def _text(user_data: bytes | None, key: str) -> str | None:
    found = group_terms.value_in(user_data, key)
    return found if isinstance(found, str) else None
