"""A lane's table with what came over bridges: written down with the batch, and back after every kind of loss."""

import json
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.protocol import stored_ids
from ringfence_kafka.protocol.hop import Source
from ringfence_kafka.readers.log_reader import LogReader
from tables import codec
from tables.change import Change, Restored, TableOptions
from tables.codec import Origin, Route
from tables.hops import Arrival, HopMemory
from tables.restore import ChangelogBounds
from tables.rocksdb.store import Store
from tables.table import LaneTable
from tests.support.records.served_log import serve
from tests.unit.tables.test_restore import Record

TOPIC_ID = "AbC_-67890123456789012"
WAY, OTHER_WAY = Route(Source("to-paris", TOPIC_ID, 3), 0), Route(Source("to-paris", TOPIC_ID, 3), 1)
DAY_S = 86_400.0


@dataclass
class Log:
    """A lane's changelog in memory: what the lane commits there, and what a broker does with it."""

    records: list[Record] = field(default_factory=list)
    end: int = 0

    def commit(self, table: LaneTable, change: Change) -> int:
        """One transaction, as :func:`agents.output.changelog.changelog_batches` makes it; returns the position after its last record."""
        for key, value in [*table.persisted(change), (codec.META_KEY, codec.encode_meta(change.meta))]:
            self.append(key, value)
        position = self.end
        self.end += 1  # the marker
        return position

    def append(self, key: bytes, value: bytes | None) -> None:
        self.records.append(Record(self.end, key, value))
        self.end += 1

    def clear_hops(self, keys: Sequence[bytes], meta: bytes) -> None:
        """As ``rings clear`` writes it."""
        for key in keys:
            self.append(key, None)
        self.append(codec.META_KEY, meta)
        self.end += 1

    def compact(self) -> None:
        """Keep only the last record of each key."""
        last = {record.key: record for record in self.records}
        self.records = sorted(last.values())

    def kinds(self) -> list[str]:
        return [record.key[:1].hex() for record in self.records]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """Only the consumer that would fetch its records is replaced."""
    log = Log()

    serve(monkeypatch, lambda: log.records)
    return log


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Callable[..., LaneTable]]:
    made: list[LaneTable] = []

    def make(folder: str = "one", capacity: int = 100, **options: Any) -> LaneTable:
        made.append(LaneTable(tmp_path / folder, TableOptions(capacity, 1_000, **options)))
        return made[-1]

    yield make
    for lane_table in made:
        lane_table.close()


async def _open(table: LaneTable, log: Log) -> tuple[int, Restored]:
    return await table.open(LogReader(KafkaSettings()), "changelog", 0, ChangelogBounds(0, log.end, DAY_S))


def _known(
    table: LaneTable, log: Log, epoch: int, *arrivals: Arrival, ids: Sequence[bytes] = (), stored: bool = True
) -> list[bool]:
    """One batch, committed; ``stored`` = False: the process ends before it is written to RocksDB."""
    judged = table.check_hops(arrivals)
    checked = table.check([stored_ids.encode_id(id_) for id_ in ids], [0] * len(ids))
    origins = [Origin(0, 0, 0)] * len(checked.new_ids)
    change = table.record(checked, origins, {"orders": 1}, {"orders": 1}, {}, judged)
    position = log.commit(table, change)
    if stored:
        table.apply(epoch, change, position)
    return list(judged.known)


async def test_who_knows_no_hops_is_kept_out(log: Log, tables: Callable[..., LaneTable]) -> None:
    """The meta record has format 2 from the first hop on, cleared or not.

    An opening after a clean stop reads that record alone, so a version without hops refuses it.
    """

    def formats() -> list[int]:
        return [
            json.loads(record.value or b"")["format"]
            for record in log.records
            if record.key == codec.META_KEY
        ]

    table = tables()
    epoch, _ = await _open(table, log)
    _known(table, log, epoch, ids=[b"a"])
    _known(table, log, epoch, Arrival(WAY, 7, 0))
    _known(table, log, epoch, ids=[b"b"])
    log.clear_hops([codec.hops_key(WAY)], codec.encode_meta(log_meta(table)))
    table.close()
    table = tables()
    epoch, restored = await _open(table, log)
    _known(table, log, epoch, ids=[b"c"])

    assert restored.reused
    assert formats() == [1, 2, 2, 2, 2]


def log_meta(table: LaneTable) -> codec.Meta:
    """As last committed."""
    assert table.meta is not None
    return table.meta


async def test_restart_and_another_disk(log: Log, tables: Callable[..., LaneTable]) -> None:
    """A restart restores hops from RocksDB, and another machine from the changelog."""
    table = tables()
    epoch, _ = await _open(table, log)
    assert _known(table, log, epoch, Arrival(WAY, 5, 4), Arrival(WAY, 9, 4)) == [False, False]
    table.close()
    again, elsewhere = tables("one"), tables("two")
    epoch, restored = await _open(again, log)

    assert restored.reused
    assert _known(again, log, epoch, Arrival(WAY, 9, 0), Arrival(WAY, 3, 0), Arrival(WAY, 6, 0)) == [
        True,
        True,
        False,
    ]
    epoch, restored = await _open(elsewhere, log)
    assert not restored.reused
    assert _known(elsewhere, log, epoch, Arrival(WAY, 6, 0), Arrival(WAY, 7, 0)) == [True, False]


async def test_one_record_a_way_and_batch(log: Log, tables: Callable[..., LaneTable]) -> None:
    """A batch writes one record for each route with new hops, however many, and none otherwise."""
    table = tables()
    epoch, _ = await _open(table, log)
    _known(table, log, epoch, *(Arrival(WAY, index, 0) for index in range(50)), Arrival(OTHER_WAY, 60, 0))
    assert log.kinds() == ["03", "03", "00"]
    _known(table, log, epoch, ids=[b"a"])

    assert log.kinds() == ["03", "03", "00", "01", "00"]


async def test_in_memory_only(log: Log, tables: Callable[..., LaneTable]) -> None:
    """A table in memory writes nothing and begins empty at each opening, even if hops were stored before."""
    table = tables()
    epoch, _ = await _open(table, log)
    _known(table, log, epoch, Arrival(WAY, 5, 0))
    table.close()
    volatile = tables(persistent=False)
    epoch, _ = await _open(volatile, log)
    assert _known(volatile, log, epoch, Arrival(WAY, 5, 0), Arrival(WAY, 6, 0)) == [False, False]
    assert _known(volatile, log, epoch, Arrival(WAY, 6, 0)) == [True]
    assert log.kinds().count("03") == 1
    epoch, _ = await _open(volatile, log)

    assert _known(volatile, log, epoch, Arrival(WAY, 6, 0)) == [False]


async def test_cleared(log: Log, tables: Callable[..., LaneTable]) -> None:
    """Tombstones make a lane forget, in memory, in RocksDB and on another machine; IDs stay known."""
    table = tables()
    epoch, _ = await _open(table, log)
    _known(table, log, epoch, Arrival(WAY, 5, 5), Arrival(OTHER_WAY, 6, 5), ids=[b"a"])
    assert table.meta is not None
    log.clear_hops(list(map(codec.hops_key, table.hops.routes)), codec.encode_meta(table.meta))
    await _open(table, log)
    assert table.hops.routes == {}
    table.close()
    again, elsewhere = tables(), tables("two")
    _, restored = await _open(again, log)
    await _open(elsewhere, log)

    assert restored.reused
    assert again.hops.routes == elsewhere.hops.routes == {}
    assert len(again.ring) == len(elsewhere.ring) == 1


async def test_resized(log: Log, tables: Callable[..., LaneTable]) -> None:
    """A smaller table keeps the highest hops.

    A disabled one passes all and writes nothing; enabled again, it still knows the earlier hops.
    """
    table = tables()
    epoch, _ = await _open(table, log)
    _known(table, log, epoch, *(Arrival(WAY, index, 2) for index in range(2, 8)))
    table.close()
    smaller = tables(capacity=2)
    await _open(smaller, log)
    assert list(smaller.hops.routes[WAY].above) == [6, 7]
    smaller.close()
    off = tables(capacity=0)
    epoch, _ = await _open(off, log)
    written = len(log.records)
    assert _known(off, log, epoch, Arrival(WAY, 7, 0), Arrival(WAY, 7, 0)) == [False, False]
    assert "03" not in log.kinds()[written:]
    off.close()
    on = tables()
    epoch, _ = await _open(on, log)

    assert _known(on, log, epoch, Arrival(WAY, 1, 0), Arrival(WAY, 7, 0), Arrival(WAY, 8, 0)) == [
        True,
        True,
        False,
    ]


async def test_damaged_record_on_disk(log: Log, tables: Callable[..., LaneTable], tmp_path: Path) -> None:
    """RocksDB with a record that cannot be read is rebuilt from the changelog."""
    table = tables()
    epoch, _ = await _open(table, log)
    _known(table, log, epoch, Arrival(WAY, 5, 0))
    table.close()
    store = Store(tmp_path / "one")
    store._db.put(b"h" + codec.hops_key(WAY)[1:], codec.hops_value(0, [5])[:-1] + b"\x00")
    store.close()
    again = tables()
    epoch, restored = await _open(again, log)

    assert not restored.reused
    assert _known(again, log, epoch, Arrival(WAY, 5, 0)) == [True]


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_happens(
    log: Log, tables: Callable[..., LaneTable], tmp_path: Path, seed: int
) -> None:
    """A table knows what an uninterrupted memory knows, through restarts, lost disks, compaction, lost writes and clearing."""
    dice = random.Random(seed)
    capacity = dice.choice([2, 5, 1_000])
    reference = HopMemory(capacity)
    table = tables(capacity=capacity)
    epoch, _ = await _open(table, log)
    top = 0
    for _ in range(60):
        top += dice.randint(0, 6)
        arrivals = [
            Arrival(
                dice.choice([WAY, OTHER_WAY]),
                offset := dice.randint(max(0, top - 12), top),
                max(0, offset - dice.randint(0, 20)),
            )
            for _ in range(dice.randint(0, 6))
        ]
        judged = reference.check(arrivals)
        stored = dice.random() < 0.9
        ids = [b"%d" % dice.randint(0, 20) for _ in range(dice.randint(0, 2))]

        assert _known(table, log, epoch, *arrivals, ids=ids, stored=stored) == list(judged.known), (
            f"seed {seed}"
        )
        reference.apply(judged)
        happens = dice.random()
        if happens < 0.05:
            assert table.meta is not None
            log.clear_hops(list(map(codec.hops_key, reference.routes)), log.records[-1].value or b"")
            reference = HopMemory(capacity)
        if happens < 0.15:
            log.compact()
        if happens < 0.3 or not stored:
            if dice.random() < 0.7:
                table.close()
            if dice.random() < 0.3:
                table.close()
                shutil.rmtree(tmp_path / "one")
            epoch, _ = await _open(table, log)
