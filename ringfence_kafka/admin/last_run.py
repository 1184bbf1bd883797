"""Reads the result of the last reconciliation run, which may have run on another machine."""

from ringfence_kafka.admin.connection import Connection
from ringfence_kafka.admin.group_admin import GroupAdmin
from ringfence_kafka.protocol import run_result, wire_names
from ringfence_kafka.protocol.run_result import RunResult


async def last_run(connection: Connection, app_id: str) -> RunResult | None:
    """Return the result of the last run; None = no run within the brokers' ``offsets.retention.minutes`` (7 days).

    Raises:
        GroupAuthorizationFailedError: this user may not Describe the group of runs.
        KafkaError: the group's coordinator cannot answer now.
    """
    runs = GroupAdmin(connection, wire_names.run_group(app_id))
    found = await runs.committed(wire_names.journal_topic(app_id), run_result.PARTITION)
    return None if found is None else run_result.decode(found.note)
