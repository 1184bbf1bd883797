"""What status tells of a cause that many lanes share: one problem, by what workers report in fields."""

from dataclasses import replace
from typing import Any

import pytest

from app.status import lanes, verb
from app.status.findings import findings
from app.status.model import Worker
from ringfence_kafka.members import Member
from tests.support.standing import STATUS

MEMBER = Member("w1", "10.0.0.1", "http://w1:6066", frozenset())


def _worker(**told: Any) -> Worker:
    """As its health describes it."""
    return lanes._worker(MEMBER, 2, {"ready": True, **told}, None)


@pytest.mark.parametrize(
    ("told", "stands"), [({}, True), ({"lanes_in_memory": ["orders-0", "orders-1"]}, False)]
)
def test_lanes_in_memory(told: dict[str, Any], stands: bool) -> None:
    """The worker has a field for it. Its text decides nothing, and a worker without the field has none in memory."""
    worker = _worker(state_folder="no space (lanes keep their state in memory)", **told)
    status = replace(STATUS, workers=[worker])
    (found,) = findings(status)

    assert found.stands is stands
    document = verb.as_document(status, [found])
    assert document["workers"][0]["lanes_in_memory"] == told.get("lanes_in_memory", [])
