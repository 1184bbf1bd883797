"""Reads the result of the last reconciliation run, which may have run on another machine."""

from aiokafka import TopicPartition

from ringfence_kafka.admin.connection import Connection
from ringfence_kafka.groups import committed_offsets
from ringfence_kafka.groups.committed_offsets import Committed
from ringfence_kafka.protocol import run_result, wire_names
from ringfence_kafka.protocol.run_result import RunResult


async def last_run(connection: Connection, app_id: str) -> RunResult | None:
    """Return the result of the last run; None = no run within the brokers' ``offsets.retention.minutes`` (7 days).

    Raises:
        GroupAuthorizationFailedError: this user may not Describe the group of runs.
        KafkaError: the group's coordinator cannot answer now.
    """
    group = wire_names.run_group(app_id)
    place = TopicPartition(wire_names.journal_topic(app_id), run_result.PARTITION)
    coordinator = await connection.admin.find_coordinator(group)
    found = (await committed_offsets.fetch(connection.admin, group, [place], coordinator))[place]
    if isinstance(found, Exception):
        raise found
    return run_result.decode(found.note) if isinstance(found, Committed) else None
