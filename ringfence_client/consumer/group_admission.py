"""Admission to the consumer group: checks before the join, and refusals by the assigning member."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka.errors import (
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    KafkaConnectionError,
)

from ringfence_client.consumer import app_id_check, group_terms
from ringfence_client.consumer.assignor import KeepingAssignor
from ringfence_client.handlers.options import ConsumerOptions
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.admin.group_watch import GroupWatch
from ringfence_kafka.auth.access_errors import nobody
from ringfence_kafka.auth.client_options import refusal
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import ConfigurationError, PrerequisiteError


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
        """Start aiokafka's consumer, which joins the group.

        Raises:
            ConfigurationError: The group has members of another kind, ``app.id`` or terms, or the session time-out is out of range.
            PrerequisiteError: This user may not read as the group.
            BrokerUnavailableError: No broker answers.
        """
        await app_id_check.require(self._cluster, self._topic, self._settings.app.id)
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
        self.fault = app_id_check.fault(self._group, self._topic, self._settings.app.id, app_id)
        self.refusing.set()

    def _refuse_terms(self, group: group_terms.Terms) -> None:
        self.fault = self._terms_fault(group_terms.differences(group, self._terms))
        self.refusing.set()

    def _terms_fault(self, found: str) -> str:
        return (
            f"the consumer group {self._group} has consumers of {self._topic} with other options: {found}. Give all consumers of a group the "
            "same option. To change it, end all of them first; this one may be started again and again until they have ended"
        )
