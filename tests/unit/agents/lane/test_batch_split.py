"""How many records of a batch go into one transaction."""

from agents.batch.batch import TRANSACTION_RECORDS_MAX
from agents.lane.batch_split import BatchSplit


def test_halved_until_it_goes_well() -> None:
    """A batch is split after repeated failures, down to one record, and grows again after successes."""
    divided = BatchSplit()
    assert not divided.failed(TRANSACTION_RECORDS_MAX)
    assert divided.records_max == TRANSACTION_RECORDS_MAX
    found = []
    while divided.failed(divided.records_max):
        found.append(divided.records_max)
    assert found == [10_000, 5_000, 2500, 1250, 625, 312, 156, 78, 39, 19, 9, 4, 2, 1]
    for _ in range(5):
        divided.succeeded()
    assert divided.records_max == 32
    assert not divided.failed(32)
    for _ in range(20):
        divided.succeeded()
    assert divided.records_max == TRANSACTION_RECORDS_MAX
    divided.failed(10)
    assert divided.failed(10)
    assert divided.records_max == 5  # of those that there were: a batch is seldom full
