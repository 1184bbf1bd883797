"""How far a lane is, where retention has deleted what comes next."""

from types import SimpleNamespace
from typing import Any

import pytest

from agents.batch.batch import FetchedBatch
from agents.lane.cursor import Cursor
from ringfence_kafka.errors import InvariantError
from ringfence_kafka.producer.transactional import FencedError
from tests.support.cluster_double import ClusterDouble

RECORD: Any = SimpleNamespace(offset=9)
BATCH = FetchedBatch("orders", 0, 9, 10, [RECORD], 1)


class _Cluster(ClusterDouble):
    """The log begins at 9."""

    def __init__(self, committed: int | None) -> None:
        self._committed = committed

    async def log_start(self, _topic: str, _partition: int) -> int:
        return 9

    async def committed_offset(self, _topic: str, _partition: int) -> int | None:
        return self._committed


@pytest.mark.parametrize("committed", [7, None])
async def test_deleted_before_processing(committed: int | None, caplog: pytest.LogCaptureFixture) -> None:
    """A gap is reported, and the lane continues. Expired offsets of the group do not matter."""
    cursor = Cursor("orders-0", "orders", 0, 7, "id", 7)
    cluster: Any = _Cluster(committed)
    ownership: Any = None

    assert await cursor.admit(BATCH, cluster, ownership) == [RECORD]
    assert cursor.gap_records == 2
    assert "GAP: offsets 7 to 8 of orders/0" in caplog.text


async def test_processed_by_another_owner_and_deleted(caplog: pytest.LogCaptureFixture) -> None:
    """A lane that another owner has meanwhile advanced reports no gap. It is fenced, and opens again."""
    cursor = Cursor("orders-0", "orders", 0, 7, "id", 7)
    cluster: Any = _Cluster(9)
    ownership: Any = None

    with pytest.raises(FencedError, match="was processed up to 9 by another owner, and here up to 7"):
        await cursor.admit(BATCH, cluster, ownership)
    assert cursor.gap_records == 0
    assert "GAP" not in caplog.text


def test_a_position_never_goes_back() -> None:
    """A position that goes back is a defect of Ringfence: nothing would be fetched again, and the lower one would be committed."""
    cursor = Cursor("orders-0", "orders", 0, 7, "id", 7)
    cursor.done(9)

    with pytest.raises(InvariantError, match="orders 0 is done up to 8 and was up to 9"):
        cursor.done(8)
    assert cursor.next == 9
