"""Describes consumer groups with librdkafka's client, which finds all coordinators and queries them at the same time."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from ringfence_kafka.auth.client_options import REQUEST_TIMEOUT_MS
from ringfence_kafka.auth.tls import confluent_options
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import BrokerUnavailableError, PrerequisiteError


class GroupDescription(NamedTuple):
    """Present state and members of a consumer group."""

    state: str
    members: frozenset[str]
    """Instance names of the members, from their client IDs."""
    assigned: Mapping[tuple[str, int], str]
    """Member that has each partition; empty during a rebalance."""


def describe(
    kafka: KafkaSettings, groups: Collection[str], *, partial: bool = False
) -> dict[str, GroupDescription]:
    """Return descriptions of consumer groups. An unknown group has no members. Blocks.

    ``partial``: leave out groups that this user may not see.

    Raises:
        PrerequisiteError: this user may not see a group.
        BrokerUnavailableError: a coordinator does not answer.
    """
    admin = AdminClient(confluent_options(kafka))
    futures = admin.describe_consumer_groups(list(groups), request_timeout=REQUEST_TIMEOUT_MS / 1000)
    found = {}
    for name, future in futures.items():
        try:
            described = future.result()
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.GROUP_ID_NOT_FOUND:
                found[name] = GroupDescription("DEAD", frozenset(), {})
                continue
            if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
                if partial:
                    continue
                raise PrerequisiteError(
                    f"group {name}: this user may not see its members: allow Describe on it"
                ) from error
            raise BrokerUnavailableError(
                f"the coordinator of the consumer group {name} does not answer ({error.args[0].str()}): is the "
                "topic __consumer_offsets available?"
            ) from error
        found[name] = GroupDescription(
            described.state.name,
            frozenset(kafka.instance_of(member.client_id) for member in described.members),
            {
                (tp.topic, tp.partition): kafka.instance_of(member.client_id)
                for member in described.members
                for tp in member.assignment.topic_partitions
            },
        )
    return found
