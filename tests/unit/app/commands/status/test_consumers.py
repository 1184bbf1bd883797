from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

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


class _Admin:
    """librdkafka's, of a cluster that lets this user see one consumer group and not the other."""

    def __init__(self, _: object) -> None:
        pass

    def describe_consumer_groups(self, groups: list[str], **_: object) -> dict[str, "Future[Any]"]:
        found: dict[str, Future[Any]] = {group: Future() for group in groups}
        for name, future in found.items():
            if name == "hidden":
                future.set_exception(KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)))
            else:
                future.set_result(SimpleNamespace(state=SimpleNamespace(name="STABLE"), members=[]))
        return found


class _Cluster(ClusterDouble):
    """One accepted topic of a partition, of which all is finished."""

    def __init__(self, *_: object) -> None:
        pass

    async def partition_counts(self, topics: list[str]) -> dict[str, int]:
        return dict.fromkeys(topics, 1)

    async def describe(self, groups: list[str], *, partial: bool) -> dict[str, GroupDescription]:
        return descriptions.describe(SETTINGS.kafka, groups, partial=partial)

    async def foreign_members(self, _is_ours: Any, _group: str) -> list[Any]:
        return []

    async def known_stable_ends(self, places: Any, _limit: float) -> dict[Any, int]:
        return dict.fromkeys(places, 5)

    async def ids(self, topics: list[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "id")


def test_what_is_parked_does_not_fail() -> None:
    """A message with a written dead letter waits for an operator, and is not retried although its handler failed."""
    failures = {7: Failures(5, 1_000), 9: Failures(1, 2_000)}
    parked = Progress(7, failures=failures, blocked=(7, 12), topic_id="id")
    group = GroupDescription("STABLE", frozenset(), {})

    row = leases._row(("billing", TOPIC, 0), "orders", leases._Stored(parked, 0, None), group, 20, None)
    share = consumers._share(
        row, {(TOPIC, 0, 7): SimpleNamespace(timestamp=0, key=b"g")}, None, {}, (None, None)
    )

    assert (row.failing_offset, row.failing_attempts) == (9, 1)
    assert (share.blocked, share.blocked_group) == (2, "g")


def test_longest_run() -> None:
    """Only the holder's own report shows that no handler runs."""
    run = {"group": "g", "seconds": 7.5}
    assert consumers._longest(None, 0) == consumers._longest({}, 0) == (None, None)
    assert consumers._longest({"longest_runs": {}}, 0) == (None, 0.0)
    assert consumers._longest({"longest_runs": {"0": run}}, 0) == ("g", 7.5)


async def test_a_group_that_may_not_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that may not be seen is named with the missing permission, and hides no other group."""

    async def stored(*_: object) -> tuple[dict[Any, Any], list[str]]:
        record = leases._Stored(Progress(5, topic_id="id"), 0, None)
        return {("hidden", TOPIC, 0): record, ("billing", TOPIC, 0): record}, []

    monkeypatch.setattr(descriptions, "AdminClient", _Admin)
    monkeypatch.setattr(leases, "Cluster", _Cluster)
    monkeypatch.setattr(leases, "_stored", stored)
    nobody: Any = None

    found = await consumers.read_consumers(SETTINGS, nobody)
    without = await consumers.read_consumers(SETTINGS, nobody, ["hidden"])

    assert [consumers.consumer_group for consumers in found.consumers] == ["billing"]
    assert found.faults == [
        "hidden is left out: this user may not see its members: allow Describe on that group"
    ]
    assert without.faults == []
