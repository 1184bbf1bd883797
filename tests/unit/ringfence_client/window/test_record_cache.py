"""The records that are cached, parked, or wanted before a handler waits for them."""

import functools
from typing import Any

from ringfence_client.window.memory_budget import MemoryBudget
from ringfence_client.window.record_cache import RecordCache
from tests.support.consumers.windows import Fetched, of


def _memory(bytes_max: int = 10_000_000) -> MemoryBudget:
    """Return a budget of which a lone partition may use that many bytes."""
    memory = MemoryBudget(bytes_max * 16 // 9)

    assert memory.limit(0) in {bytes_max, bytes_max - 1}

    return memory


def _kept(records_max: int, *records: Fetched, memory: MemoryBudget | None = None) -> RecordCache:
    kept = RecordCache(records_max, memory or _memory())
    for record in records:
        kept.cache(record)
    return kept


def _there(kept: RecordCache, offsets: range) -> list[int]:
    return [offset for offset in offsets if kept.record(offset) is not None]


def test_as_much_as_is_free() -> None:
    """A lone group gets half, the next one half of the rest; the ungrouped may have all that is left."""
    kept = _kept(100, *of(b"a", *range(80)), *of(b"b", *range(80, 160)), *of(None, *range(160, 240)))

    assert _there(kept, range(240)) == [*range(50), *range(80, 105), *range(160, 185)]
    assert (len(kept), len(kept.parked)) == (100, 140)


def test_the_first_are_kept() -> None:
    """All later records of a group are parked once one is, even if there is room again."""
    kept = _kept(10, *of(b"a", *range(6)))
    for offset in range(4):
        kept.drop(offset, b"a")
    kept.cache(Fetched(6, b"a"))

    assert _there(kept, range(7)) == [4]
    assert kept.parked == {5, 6}


class CountingCache(RecordCache):
    """Counts the groups that it looks at."""

    looks = 0

    def _head(self, share: Any) -> int | None:
        self.looks += 1
        return super()._head(share)


def test_the_cost_of_many_groups() -> None:
    """Each fetch asks for what is wanted. With 100,000 parked groups it must not look at all of them: nothing else would run."""
    kept = CountingCache(10, _memory())
    for offset in range(5_000):
        kept.cache(Fetched(offset, b"%d" % offset))
    kept.looks = 0

    assert kept.wanted() is None  # there is no room
    assert kept.looks == 0

    kept.drop(0, b"0")
    kept.looks = 0
    assert kept.wanted() == 10
    assert kept.looks < 1_000


def test_wanted_at_half() -> None:
    """A parked record is wanted when half of its group's cached records are used up; the group with the least left is first."""
    kept = _kept(12, *of(b"a", *range(8)), *of(b"b", *range(8, 16)))

    assert _there(kept, range(16)) == [0, 1, 2, 3, 4, 5, 8, 9, 10]

    kept.drop(0, b"a")
    kept.drop(1, b"a")

    assert kept.wanted() is None

    kept.drop(2, b"a")

    assert kept.wanted() == 6

    kept.drop(8, b"b")
    kept.drop(9, b"b")

    assert kept.wanted() == 11


def test_unparked_as_far_as_there_is_room() -> None:
    """Reading again brings what is parked, in each group from its first on, as far as there is room, and one in any case."""
    kept = _kept(8, *of(b"a", 0, 1, 2, 3, 4, 5, 6), *of(b"b", 7, 8, 9, 10))
    for offset in (0, 1, 2):
        kept.drop(offset, b"a")
    again = [*of(b"a", 5, 6), *of(b"b", 9, 10)]
    kept.unpark(again, always=False)
    assert kept.parked == {4, 5, 6}

    kept.unpark([*of(b"a", 4), *again], always=False)
    assert _there(kept, range(11)) == [3, 4, 7, 8, 9, 10]
    assert kept.wanted() is None

    full = _kept(4, *of(None, 0, 1, 2, 3), *of(b"a", 4, 5))
    full.unpark(of(b"a", 4, 5), always=True)
    assert _there(full, range(6)) == [0, 1, 2, 3, 4]


def test_gone() -> None:
    """A record that is gone from the log is wanted only once; later ones are wanted after its turn."""
    kept = _kept(4, *of(b"a", 0, 1, 2, 3, 4))
    kept.drop(0, b"a")

    assert kept.wanted() == 2

    kept.gone(2)

    assert kept.wanted() is None

    kept.drop(1, b"a")
    kept.drop(2, b"a")
    kept.unpark(of(b"a", 3), always=True)
    kept.drop(3, b"a")

    assert kept.wanted() == 4


@functools.cache
def _value(size: int) -> bytes:
    """One for all: what would be too much is not made."""
    return b"v" * size


def test_greedy_partition() -> None:
    """A partition gets its share of memory, however much another one has and whichever came first."""
    memory = MemoryBudget(160_000_000)
    greedy, late = RecordCache(10_000, memory), RecordCache(10_000, memory)
    for offset in range(3_000):
        greedy.cache(Fetched(offset, b"%d" % (offset % 50), _value(100_000)))
    for offset in range(3_000):
        late.cache(Fetched(offset, b"%d" % (offset % 50), _value(100_000)))

    assert len(greedy) > len(late) > 250
    assert memory.used < 130_000_000


def test_what_is_counted() -> None:
    memory = MemoryBudget(2**30)
    plain, headed = RecordCache(10, memory), RecordCache(10, memory)
    plain.cache(Fetched(0, b"key", b"value"))
    headers = (("name", b"x" * 500), ("none", None))
    headed.cache(Fetched(0, b"key" * 1_000, b"value", headers=headers))

    assert plain.bytes > 1_000
    assert headed.bytes - plain.bytes > 3_400
    assert memory.used == plain.bytes + headed.bytes


def test_waiting_records_give_up_room_that_they_do_not_have() -> None:
    """A message that is read again for its turn, and then waits, keeps no more records in memory than allowed."""
    groups = [b"g%d" % index for index in range(30)]
    kept = _kept(10, *(Fetched(index, group) for index, group in enumerate(groups)))
    for index, group in enumerate(groups):
        if kept.record(index) is None:
            kept.unpark([Fetched(index, group)], always=True)
        kept.mark_waiting(index, group)

    assert _there(kept, range(30)) == list(range(20, 30))
    assert (kept.backlog, len(kept.parked)) == (0, 20)
    assert kept.takes(2)  # the log is read on


def test_groups_that_wait_leave_room() -> None:
    """Records behind messages that wait make room for fresh groups, and are read again in order when their turn comes."""
    sick = {b"%d" % index: [3 * index, 3 * index + 1, 3 * index + 2] for index in range(10)}
    kept = RecordCache(50, _memory(), lambda group: sick[group][1:])
    for group, offsets in sick.items():
        for record in of(group, *offsets):
            kept.cache(record)
    for group, offsets in sick.items():
        kept.mark_waiting(offsets[0], group)
    healthy = [Fetched(100 + index, b"h%d" % index) for index in range(50)]
    for record in healthy:
        kept.cache(record)

    assert len(_there(kept, range(100, 150))) == 50
    assert kept.backlog == 0
    assert kept.wanted() is None

    for record in healthy:
        kept.drop(record.offset, record.key)
    kept.unpark(of(b"0", 0, 1, 2), always=False)
    assert _there(kept, range(3)) == []  # they still wait

    kept.recall(0)
    kept.unpark(of(b"0", 0, 1, 2), always=True)
    assert _there(kept, range(3)) == [0, 1, 2]
    for offset in range(3):
        kept.drop(offset, b"0")
    assert _there(kept, range(30)) == []


def test_crowding_counts_what_cannot_be_parked() -> None:
    """With little memory, groups that wait fill it long before their number is large, and somebody must know."""
    kept = _kept(1_000, *(Fetched(index, b"%d" % index, b"v" * 10_000) for index in range(60)))

    assert kept.crowding < 0.05  # records alone crowd nothing

    before = kept.crowding
    for index in range(60):
        kept.mark_waiting(index, b"%d" % index)

    assert kept.crowding > 1.5 * before
    for index in range(60):
        kept.drop(index, b"%d" % index)
    assert kept.crowding == 0
