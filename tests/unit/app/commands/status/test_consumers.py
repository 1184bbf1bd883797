from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from confluent_kafka import KafkaError, KafkaException

from app.commands.consumers import leases
from app.commands.status import consumers
from ringfence_client.handlers.retries import Failures
from ringfence_client.progress.progress_record import Progress
from ringfence_kafka.config.load import validate
from ringfence_kafka.groups import descriptions
from ringfence_kafka.groups.descriptions import GroupDescription
from tests.support.cluster_double import ClusterDouble

SETTINGS = validate({"addresses": [{"name": "orders"}]})
TOPIC = "orders.accepted"


def _described(groups: list[str], **_: object) -> dict[str, "Future[Any]"]:
    """As librdkafka describes groups of a cluster that lets this user see one of them and not the other."""
    found: dict[str, Future[Any]] = {group: Future() for group in groups}
    for name, future in found.items():
        if name == "hidden":
            future.set_exception(KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)))
        else:
            future.set_result(SimpleNamespace(state=SimpleNamespace(name="STABLE"), members=[]))
    return found


class _Cluster(ClusterDouble):
    """One accepted topic of a partition, of which all is finished."""

    partition_counts = AsyncMock(return_value={TOPIC: 1})
    foreign_members = AsyncMock(return_value=[])
    known_stable_ends = AsyncMock(return_value={(TOPIC, 0): 5})
    ids = AsyncMock(return_value={TOPIC: "id"})

    async def describe(self, groups: list[str], *, partial: bool) -> dict[str, GroupDescription]:
        return descriptions.describe(SETTINGS.kafka, groups, partial=partial)


def test_what_is_parked_does_not_fail() -> None:
    """A message with a written dead letter waits for an operator, and is not retried although its handler failed.

    Only the holder's own report shows that no handler runs.
    """
    run = {"group": "g", "seconds": 7.5}
    assert consumers._longest(None, 0) == consumers._longest({}, 0) == (None, None)
    assert consumers._longest({"longest_runs": {}}, 0) == (None, 0.0)
    assert consumers._longest({"longest_runs": {"0": run}}, 0) == ("g", 7.5)

    failures = {7: Failures(5, 1_000), 9: Failures(1, 2_000)}
    parked = Progress(7, failures=failures, blocked=(7, 12), topic_id="id")
    group = GroupDescription("STABLE", frozenset(), {})

    row = leases._row(("billing", TOPIC, 0), "orders", leases._Stored(parked, 0, None), group, 20, None)
    blocked = {(TOPIC, 0, 7): SimpleNamespace(timestamp=0, key=b"g")}
    share = consumers._share(row, blocked, None, {}, (None, None))

    assert (row.failing_offset, row.failing_attempts) == (9, 1)
    assert (share.blocked, share.blocked_group) == (2, "g")


async def test_a_group_that_may_not_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that may not be seen is named with the missing permission, and hides no other group."""
    record = leases._Stored(Progress(5, topic_id="id"), 0, None)
    stored = {(group, TOPIC, 0): record for group in ("hidden", "billing")}
    admin = SimpleNamespace(describe_consumer_groups=_described)
    monkeypatch.setattr(descriptions, "AdminClient", lambda _: admin)
    monkeypatch.setattr(leases, "Cluster", lambda *_: _Cluster())
    monkeypatch.setattr(leases, "_stored", AsyncMock(return_value=(stored, [])))
    nobody: Any = None

    found = await consumers.read_consumers(SETTINGS, nobody)
    without = await consumers.read_consumers(SETTINGS, nobody, ["hidden"])

    assert [consumers.consumer_group for consumers in found.consumers] == ["billing"]
    [fault] = found.faults
    assert fault == "hidden is left out: this user may not see its members: allow Describe on that group"
    assert without.faults == []
