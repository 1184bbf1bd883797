"""Partitions come and go, and keep, park, drop and read again: each record is there in its turn, and the books are right."""

import random
from collections import Counter

import pytest

from ringfence_client.window.memory_budget import GROUP_BYTES, MESSAGE_BYTES, MemoryBudget, size
from ringfence_client.window.record_cache import RecordCache
from tests.support.consumers.windows import Fetched

STEPS = 3_000


class Model:
    """A partition, and the expected state of its memory."""

    def __init__(self, memory: MemoryBudget, records_max: int) -> None:
        self.resident = RecordCache(records_max, memory)
        self.waiting: list[Fetched] = []
        self.next = 0

    @property
    def bytes(self) -> int:
        groups = Counter(item.key for item in self.waiting)
        there = sum(size(item) for item in self.waiting if self.resident.record(item.offset) is not None)
        return there + MESSAGE_BYTES * len(self.waiting) + GROUP_BYTES * len(groups)


@pytest.mark.parametrize("seed", range(8))
def test_books_and_bounds(seed: int) -> None:
    """Records are kept or parked, and there in their turn. Booked bytes are those kept, within a record or two of the limit."""
    chance = random.Random(seed)
    memory = MemoryBudget(16 * 2**20)
    largest = 300_000
    records_max = chance.choice([30, 10_000])
    models = [Model(memory, records_max) for _ in range(chance.choice([1, 3, 20]))]
    for step in range(STEPS):
        model = chance.choice(models)
        what = chance.random()
        if what < 0.5 and (not model.waiting or model.resident.takes(20)):
            for _ in range(chance.randrange(1, 20)):
                headers = tuple((f"h{index}", b"x" * index) for index in range(chance.randrange(3)))
                value = b"v" * chance.choice([10, 1_000, chance.randrange(largest)])
                group = chance.choice([None, b"a", b"b", b"group-%d" % step])
                record = Fetched(model.next, group, value, 0, headers)
                model.next += 1
                model.waiting.append(record)
                model.resident.cache(record)
        elif what < 0.9 and model.waiting:
            record = model.waiting[0] if what < 0.7 else chance.choice(model.waiting)
            if model.resident.record(record.offset) is None:
                model.resident.unpark([record], always=True)
            assert model.resident.record(record.offset) == record
            model.waiting.remove(record)
            model.resident.drop(record.offset, record.key)
        elif what < 0.95:
            ahead = model.resident.wanted()
            model.resident.unpark([item for item in model.waiting if item.offset == ahead], always=False)
            assert ahead is None or model.resident.record(ahead) is not None
        elif what > 0.99:
            model.resident.close()
            models[models.index(model)] = Model(memory, records_max)

        booked = sum(model.resident.bytes for model in models)
        assert memory.used == sum(model.bytes for model in models) == booked
        for model in models:
            assert len(model.resident) <= records_max + 1
            assert len(model.resident) + len(model.resident.parked) == len(model.waiting)
        assert memory.used <= memory.bytes_max + len(models) * largest

    for model in models:
        model.resident.close()

    assert memory.used == 0
