"""Admission to the consumer group: start position of a new one, checks before the join, and refusals by the assigning member."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiokafka.errors import (
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    KafkaConnectionError,
    KafkaError,
)

from ringfence_client.consumer import group_terms
from ringfence_client.consumer.assignor import KeepingAssignor
from ringfence_client.handlers.options import ConsumerOptions
from ringfence_client.progress.progress_record import encode_key
from ringfence_client.progress.progress_topic import ProgressTopic
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_admin import NO_MEMBERS
from ringfence_kafka.admin.group_watch import GroupWatch
from ringfence_kafka.auth.access_errors import nobody
from ringfence_kafka.auth.client_options import refusal
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import ConfigurationError, PrerequisiteError, named
from ringfence_kafka.groups.committed_offsets import Committed

log: Final = logging.getLogger("ringfence.consumer")


class GroupAdmission:
    """Admission of one consumer to its group."""

    def __init__(
        self,
        settings: Settings,
        topic: str,
        cluster: Cluster,
        options: ConsumerOptions,
        group_watch: GroupWatch,
    ) -> None:
        """Prepare the admission of a consumer to the cluster's group. ``group_watch`` finds foreign members."""
        self._settings = settings
        self._topic = topic
        self._cluster = cluster
        self._group = cluster.group_id
        self._session_timeout = options.session_timeout
        # A consumer that parks promises an order. A group member that does not park would break it.
        self._terms: group_terms.Terms = {"on_dead_letter": options.on_dead_letter}
        self._group_watch = group_watch
        self.fault = ""
        """Reason why this consumer may not be in its group; empty = it may."""
        self.refusing = asyncio.Event()
        """Set when the group refuses this consumer."""

    def assignor(self, owned: Callable[[], Mapping[int, int]]) -> KeepingAssignor:
        """Return the assignor of this consumer. ``owned``: as for :class:`KeepingAssignor`."""
        return KeepingAssignor(
            self._topic, owned, self._settings.app.id, self._refuse_app_id, self._terms, self._refuse_terms
        )

    async def join(self, consumer: Any) -> None:
        """Start aiokafka's consumer, which joins the group. Errors name the way out."""
        await group_terms.require_app_id(self._cluster, self._topic, self._settings.app.id)
        if found := await group_terms.unlike(self._cluster, self._topic, self._terms):
            raise ConfigurationError(self._terms_fault(found))
        try:
            await consumer.start()
        except InconsistentGroupProtocolError as error:
            await self._group_watch.refresh()
            found = "; ".join(map(str, self._group_watch.foreign)) or "which the brokers do not name"
            raise ConfigurationError(
                f"the consumer group {self._group} has members that are not Ringfence's and assign "
                f"partitions in another way: {found}. Stop them or give them another group.id, or choose "
                "another name for this group"
            ) from error
        except GroupAuthorizationFailedError as error:
            raise PrerequisiteError(
                f"this user may not read as the consumer group {self._group}: allow it, or choose another name"
            ) from error
        except InvalidSessionTimeoutError as error:
            raise ConfigurationError(
                f"the brokers do not allow a session time-out of {self._session_timeout:g} s: choose one "
                "from their group.min.session.timeout.ms (6 s by default) to their "
                "group.max.session.timeout.ms (30 min by default)"
            ) from error
        except KafkaConnectionError as error:  # a broker answered a moment ago
            raise await refusal(self._settings.kafka) or nobody(self._settings.kafka) from error

    def _refuse_app_id(self, app_id: str) -> None:
        self.fault = group_terms.app_id_fault(self._group, self._topic, self._settings.app.id, app_id)
        self.refusing.set()

    def _refuse_terms(self, group: group_terms.Terms) -> None:
        self.fault = self._terms_fault(group_terms.differences(group, self._terms))
        self.refusing.set()

    def _terms_fault(self, found: str) -> str:
        return (
            f"the consumer group {self._group} has consumers of {self._topic} with other options: {found}. Give all consumers of a group the "
            "same option. To change it, end all of them first; this one may be started again and again until they have ended"
        )


async def begin_at_end(cluster: Cluster, progress: ProgressTopic, group: str, topic: str) -> None:
    """Set the offsets of a new consumer group to the present end of its topic.

    All partitions get an offset at once, before the first consumer joins. A partition that is assigned later therefore starts at the same
    moment. A group that has consumed the topic, or has a member, continues at its position.
    """
    numbers = range((await cluster.topics.partition_counts([topic]))[topic])
    for number in numbers:
        known = await cluster.groups.committed_offset(topic, number) is not None
        if known or await progress.latest(encode_key(group, topic, number)) is not None:
            return
    ends = {number: Committed(await cluster.offsets.stable_end(topic, number), "") for number in numbers}
    try:
        await cluster.groups.commit(topic, ends)
    except KafkaError as error:
        if await cluster.groups.state() in NO_MEMBERS:
            raise
        log.info(
            "consumer group %s has members already, and starts at their position: %s", group, named(error)
        )
        return
    log.info(
        "new consumer group %s begins at the end of %s; up to %d messages before it are not handled",
        group, topic, sum(end.offset for end in ends.values()),
    )  # fmt: skip
