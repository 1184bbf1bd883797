"""Members of any consumer groups, by a client of librdkafka: it finds each group's coordinator and asks all at once."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from ringfence_kafka.auth.client_options import REQUEST_TIMEOUT_MS
from ringfence_kafka.auth.tls import confluent_options
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import BrokerUnavailableError, PrerequisiteError


class GroupDescription(NamedTuple):
    """State and members of a consumer group now."""

    state: str
    members: frozenset[str]
    """The names of their own that they have in their client IDs."""
    assigned: Mapping[tuple[str, int], str]
    """The member that has each topic's partition; empty while the group rebalances."""


def describe(
    kafka: KafkaSettings, groups: Collection[str], *, partial: bool = False
) -> dict[str, GroupDescription]:
    """Consumer groups; one that nobody knows has no members. Blocks.

    ``partial``: one that this user may not see is absent.

    Raises:
        PrerequisiteError: this user may not see one.
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
