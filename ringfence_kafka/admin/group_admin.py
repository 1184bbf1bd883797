"""Queries about one consumer group: committed offsets, state, members."""

import asyncio
import contextlib
import time
from collections.abc import Collection, Mapping
from typing import Final

from aiokafka import TopicPartition
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    GroupIdNotFound,
    GroupLoadInProgressError,
    KafkaError,
    NotCoordinatorForGroupError,
    for_code,
)

from ringfence_kafka.admin.connection import Connection
from ringfence_kafka.concurrency.coalesce import RequestCoalescer
from ringfence_kafka.errors import BrokerUnavailableError
from ringfence_kafka.groups import committed_offsets, descriptions, foreign_members, members, static_members
from ringfence_kafka.groups.committed_offsets import Committed
from ringfence_kafka.groups.descriptions import GroupDescription
from ringfence_kafka.groups.foreign_members import ForeignMember, IsOurs

COORDINATOR_LIMIT_S: Final = 20.0
DEAD: Final = "Dead"
NO_MEMBERS: Final = frozenset({"Empty", DEAD})
"""States of a consumer group without members."""
_ELSEWHERE: Final = (NotCoordinatorForGroupError, GroupCoordinatorNotAvailableError)


class GroupAdmin:
    """One group of one cluster. Simultaneous queries for offsets share one request.

    Queries raise KafkaError if the group's coordinator cannot answer now, for example while it loads, or denies access.
    """

    def __init__(self, connection: Connection, group_id: str) -> None:
        self._connection = connection
        self._group_id = group_id
        self._committed = RequestCoalescer(self._ask_committed)
        self._coordinator: int | None = None
        """Last known coordinator of the group."""

    async def stop(self) -> None:
        """Stop. Waiting queries raise StoppedError."""
        await self._committed.stop()

    async def known_commits(
        self, partitions: Collection[tuple[str, int]]
    ) -> dict[tuple[str, int], int | None]:
        """Return the group's offsets of many partitions; None = no offset. Partitions without an answer are absent."""
        if not partitions:
            return {}
        found = await self._ask_committed([TopicPartition(*partition) for partition in partitions])
        return {
            (tp.topic, tp.partition): None if item is None else item.offset
            for tp, item in found.items()
            if not isinstance(item, Exception)
        }

    async def committed_offset(self, topic: str, partition: int) -> int | None:
        """Return the group's present committed offset; None = no offset."""
        found = await self.committed(topic, partition)
        return None if found is None else found.offset

    async def committed(self, topic: str, partition: int) -> Committed | None:
        """Return the group's present committed offset with its metadata; None = no offset. aiokafka's own query hides errors as this."""
        return await self._committed.answer(TopicPartition(topic, partition))

    async def commit(self, topic: str, offsets: Mapping[int, Committed]) -> None:
        """Commit offsets for the group, which must have no members.

        Raises:
            KafkaError: the group has members, or its coordinator does not answer.
        """
        named = {TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
        await committed_offsets.commit(self._connection.admin, self._group_id, named)

    async def _ask_committed(
        self, tps: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Committed | Exception | None]:
        admin, known = self._connection.admin, self._coordinator
        if known is not None:
            with contextlib.suppress(KafkaError):  # the coordinator may have changed
                found = await committed_offsets.fetch(admin, self._group_id, tps, known)
                if not any(isinstance(value, _ELSEWHERE) for value in found.values()):
                    return found
        self._coordinator = None
        node = await admin.find_coordinator(self._group_id)
        found = await committed_offsets.fetch(admin, self._group_id, tps, node)
        self._coordinator = node
        return found

    async def await_coordinator(self) -> None:
        """Wait until the group's coordinator answers: the first query of a new cluster creates it, and others may be loading.

        Raises:
            BrokerUnavailableError: it does not answer within the limit.
        """
        deadline = time.monotonic() + COORDINATOR_LIMIT_S
        while True:
            try:
                await self.state()
                return
            except (*_ELSEWHERE, GroupLoadInProgressError) as error:
                if time.monotonic() > deadline:
                    raise BrokerUnavailableError(
                        f"the coordinator of the consumer group {self._group_id} does not answer ({type(error).__name__}): "
                        "is the topic __consumer_offsets available?"
                    ) from error
                await asyncio.sleep(0.2)

    async def state(self) -> str:
        """Return the state of the group. ``Empty`` and ``Dead`` = it has no members of any protocol."""
        admin = self._connection.admin
        coordinator = await admin.find_coordinator(self._group_id)
        (answer,) = await admin.describe_consumer_groups([self._group_id], coordinator)
        ((code, _, state, *_),) = answer.groups
        if code and code != GroupIdNotFound.errno:
            raise for_code(code)(f"the state of {self._group_id}")
        if (code or state == DEAD) and await foreign_members.of_other_types(
            admin, self._group_id, coordinator
        ):
            return "Stable"  # DescribeGroups reports groups of other types as dead
        return DEAD if code else str(state)

    async def members(self, group: str | None = None) -> members.Members:
        """Return the members of this group or another one, with their statements."""
        return await members.fetch(
            self._connection.admin, group or self._group_id, self._connection.kafka.instance_of
        )

    async def static_members(self) -> list[static_members.Member]:
        """Return the members with their instance names."""
        return await static_members.members(self._connection.admin, self._group_id)

    async def foreign_members(self, is_ours: IsOurs, group: str | None = None) -> list[ForeignMember]:
        """Return foreign members of this group or another one."""
        prefix = f"{self._connection.kafka.client_id_of('')}-"
        return await foreign_members.find_foreign_members(
            self._connection.admin, group or self._group_id, is_ours, prefix
        )

    async def describe(
        self, groups: Collection[str], *, partial: bool = False
    ) -> dict[str, GroupDescription]:
        """Describe any groups, in a thread. Raises as :func:`ringfence_kafka.groups.descriptions.describe`."""
        if not groups:
            return {}
        return await asyncio.to_thread(descriptions.describe, self._connection.kafka, groups, partial=partial)
