"""A lane's table with what came over bridges: written down with the batch, and back after every kind of loss."""

import json
import random
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.protocol import stored_ids
from ringfence_kafka.protocol.hop import Source
from ringfence_kafka.readers.log_reader import LogReader
from tables import codec
from tables.change import Change, TableOptions
from tables.codec import Origin, Route
from tables.hops import Arrival, HopMemory
from tables.restore import ChangelogBounds
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

    def clear_hops(self, *routes: Route) -> None:
        """As ``rings clear`` writes it."""
        meta = self.records[-1].value
        for route in routes:
            self.append(codec.hops_key(route), None)
        self.append(codec.META_KEY, meta)
        self.end += 1

    def compact(self) -> None:
        last = {record.key: record for record in self.records}
        self.records = sorted(last.values())

    def kinds(self) -> list[str]:
        return [record.key[:1].hex() for record in self.records]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()
    serve(monkeypatch, lambda: log.records)
    return log


@dataclass
class Opened:
    """A lane's table over its changelog, as it is open now."""

    table: LaneTable
    log: Log

    async def open(self) -> None:
        bounds = ChangelogBounds(0, self.log.end, DAY_S)
        self._epoch, self.restored = await self.table.open(LogReader(KafkaSettings()), "changelog", 0, bounds)

    def known(self, *arrivals: Arrival, ids: Sequence[bytes] = (), stored: bool = True) -> list[bool]:
        """Commit one batch; ``stored`` = False: the process ends before it is written to RocksDB."""
        table = self.table
        judged = table.hops.check(arrivals)
        checked = table.check([stored_ids.encode_id(id_) for id_ in ids], [0] * len(ids))
        origins = [Origin(0, 0, 0)] * len(checked.new_ids)
        change = table.record(checked, origins, {"orders": 1}, {"orders": 1}, {}, judged)
        position = self.log.commit(table, change)
        if stored:
            table.apply(self._epoch, change, position)
        return list(judged.known)


OpenTable = Callable[..., Awaitable[Opened]]
"""Opens a table in a folder with these options."""


@pytest.fixture
def open_table(tmp_path: Path, log: Log) -> Iterator[OpenTable]:
    made: list[LaneTable] = []

    async def open_table(folder: str = "one", capacity: int = 100, **options: Any) -> Opened:
        made.append(LaneTable(tmp_path / folder, TableOptions(capacity, 1_000, **options)))
        opened = Opened(made[-1], log)
        await opened.open()
        return opened

    yield open_table
    for table in made:
        table.close()


def _at(*offsets: int, confirmed: int = 0) -> list[Arrival]:
    return [Arrival(WAY, offset, confirmed) for offset in offsets]


async def test_who_knows_no_hops_is_kept_out(log: Log, open_table: OpenTable) -> None:
    """From the first hop on the meta record, which is all that an opening reads after a clean stop, has format 2, cleared or not."""
    lane = await open_table()
    lane.known(ids=[b"a"])
    lane.known(*_at(7))
    lane.known(ids=[b"b"])
    log.clear_hops(WAY)
    lane.table.close()
    lane = await open_table()
    lane.known(ids=[b"c"])

    assert lane.restored.reused
    metas = [record.value or b"" for record in log.records if record.key == codec.META_KEY]
    assert [json.loads(value)["format"] for value in metas] == [1, 2, 2, 2, 2]


async def test_restart_and_another_disk(open_table: OpenTable) -> None:
    """A restart restores hops from RocksDB, and another machine from the changelog."""
    lane = await open_table()
    assert lane.known(*_at(5, 9, confirmed=4)) == [False, False]
    lane.table.close()

    again = await open_table("one")
    assert again.restored.reused
    assert again.known(*_at(9, 3, 6)) == [True, True, False]
    elsewhere = await open_table("two")
    assert not elsewhere.restored.reused
    assert elsewhere.known(*_at(6, 7)) == [True, False]


async def test_in_memory_only(log: Log, open_table: OpenTable) -> None:
    """A table in memory writes nothing and begins empty at each opening, even if hops were stored before."""
    lane = await open_table()
    lane.known(*_at(5))
    lane.table.close()
    volatile = await open_table(persistent=False)
    assert volatile.known(*_at(5, 6)) == [False, False]
    assert volatile.known(*_at(6)) == [True]
    assert log.kinds().count("03") == 1
    await volatile.open()

    assert volatile.known(*_at(6)) == [False]


async def test_resized(log: Log, open_table: OpenTable) -> None:
    """A smaller table keeps the highest hops. A disabled one writes nothing; enabled again, it still knows the earlier hops."""
    lane = await open_table()
    lane.known(*_at(*range(2, 8), confirmed=2))
    lane.table.close()
    smaller = await open_table(capacity=2)
    assert list(smaller.table.hops.routes[WAY].above) == [6, 7]
    smaller.table.close()
    off = await open_table(capacity=0)
    written = len(log.records)
    assert off.known(*_at(7, 7)) == [False, False]
    assert "03" not in log.kinds()[written:]
    off.table.close()
    on = await open_table()

    assert on.known(*_at(1, 7, 8)) == [True, True, False]


@pytest.mark.parametrize("seed", range(12))
async def test_whatever_happens(log: Log, open_table: OpenTable, tmp_path: Path, seed: int) -> None:
    """A table knows what an uninterrupted memory knows, through restarts, lost disks, compaction, lost writes and clearing."""
    dice = random.Random(seed)
    capacity = dice.choice([2, 5, 1_000])
    reference = HopMemory(capacity)
    lane = await open_table(capacity=capacity)
    top = 0
    for _ in range(60):
        top += dice.randint(0, 6)
        arrivals = []
        for _ in range(dice.randint(0, 6)):
            offset = dice.randint(max(0, top - 12), top)
            confirmed = max(0, offset - dice.randint(0, 20))
            arrivals.append(Arrival(dice.choice([WAY, OTHER_WAY]), offset, confirmed))
        judged = reference.check(arrivals)
        stored = dice.random() < 0.9
        ids = [b"%d" % dice.randint(0, 20) for _ in range(dice.randint(0, 2))]

        assert lane.known(*arrivals, ids=ids, stored=stored) == list(judged.known), f"seed {seed}"
        reference.apply(judged)
        happens = dice.random()
        if happens < 0.05:
            log.clear_hops(*reference.routes)
            reference = HopMemory(capacity)
        if happens < 0.15:
            log.compact()
        if happens < 0.3 or not stored:
            if dice.random() < 0.7:
                lane.table.close()
            if dice.random() < 0.3:
                lane.table.close()
                shutil.rmtree(tmp_path / "one")
            await lane.open()
