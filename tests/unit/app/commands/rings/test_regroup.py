"""The writes of a regrouping, which may end anywhere and be run again."""

import contextlib
import functools
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple

import pytest

from agents.lane.journal import RingEvent
from agents.topic_checks.lanes import is_marked, lanes_before, live
from agents.topic_checks.topics import count_faults
from app.commands.rings.changelog_writer import Change, Event, journal_record
from app.commands.rings.joined_rings import Content, Entry, Forwarded
from app.commands.rings.regroup_plan import RegroupError, Regrouping, described, document, plan
from app.commands.rings.regroup_steps import LaneChangelogs, Regroup
from app.commands.rings.show import live_slots
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.process.step_progress import Steps
from ringfence_kafka.producer.transactional import FencedError, empty_batch
from ringfence_kafka.protocol import stored_ids
from ringfence_kafka.protocol.hop import Source
from ringfence_kafka.protocol.lane_layout import LaneLayout
from tables import codec
from tables.codec import Meta, Origin, Route, next_key
from tables.hops import HopMemory
from tables.promise import Promise
from tables.restore import Restore

CAPACITY = 6
FORWARD = "rf-orders-forward"
RULES = {"input_topic": "orders"}


def _address(**keys: object) -> AddressSettings:
    return AddressSettings.model_validate({"name": "orders", "id_cache_size": CAPACITY, **keys})


class Record(NamedTuple):
    """A changelog record with its time."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp: int


class _KilledError(Exception):
    pass


class _Logs(LaneChangelogs):
    """The changelog partitions; a process with them may be killed at a write."""

    def __init__(self, partitions: int) -> None:
        self.logs: list[list[Record]] = [[] for _ in range(partitions)]
        self.journal: list[Event] = []
        self.writes = 0
        self.kill_at = -1
        self.written_before = False
        """Whether the write at which it is killed is done."""
        self.steps = 0
        self.at_step: dict[int, Callable[[], Awaitable[object]]] = {}
        """An action of somebody else before a step."""
        self._epoch = 0
        self._writing: list[int] = []

    async def _step(self) -> None:
        self.steps += 1
        if other := self.at_step.pop(self.steps, None):
            await other()

    async def fence(self, lanes: Sequence[int]) -> None:
        self._epoch += 0 in lanes

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        self._epoch += 1
        self._writing.append(self._epoch)
        try:
            yield
        finally:
            self._writing.pop()

    def restored(self, number: int) -> Restore:
        restore = Restore(None, 0, resident=True)
        restore.consume(self.logs[number])
        return restore

    async def content(self, number: int) -> Content:
        await self._step()
        restore = self.restored(number)
        latest: dict[bytes, tuple[int, int]] = {}
        for record in self.logs[number]:
            if record.key[:1] == codec.KIND_RING and record.value is not None:
                item = codec.sequence_of(record.value), record.timestamp
                latest[record.key] = max(item, latest.get(record.key, (-1, 0)))
        return Content(
            restore.meta, restore.occupants, {key: at for key, (_, at) in latest.items()}, restore.hops
        )

    async def rewrite(self, number: int, meta: Meta, former: Meta | None) -> None:
        await self._step()
        if self.restored(number).meta != former:
            raise RegroupError
        await self._write([Change(number, [Entry(codec.META_KEY, codec.encode_meta(meta))])])

    async def write(self, changes: Sequence[Change], events: Sequence[Event] = ()) -> None:
        await self._step()
        if self._writing[-1] != self._epoch:
            raise FencedError
        await self._write(changes, events)

    async def _write(self, changes: Sequence[Change], events: Sequence[Event] = ()) -> None:
        self.writes += 1
        killed = self.writes == self.kill_at
        if killed and not self.written_before:
            raise _KilledError
        for number, entries in changes:
            self.append(number, entries)
        self.journal += events
        if killed:
            raise _KilledError

    def append(self, number: int, entries: Sequence[Entry]) -> None:
        log = self.logs[number]
        for key, value, timestamp in entries:
            log.append(Record(len(log), key, value, 10_000 if timestamp is None else timestamp))

    def metas(self) -> dict[int, Meta]:
        found = {number: self.restored(number).meta for number in range(len(self.logs))}
        return {number: meta for number, meta in found.items() if meta is not None}

    def ids(self, number: int) -> list[bytes]:
        """Live IDs, the oldest first."""
        slots = sorted(live_slots(self.restored(number)), key=lambda slot: slot.sequence)
        return [slot.id[1:] for slot in slots]


def _begun(lanes: int, partitions: int, logs: _Logs, accepted: Sequence[tuple[bytes, int, int]]) -> None:
    """Lanes that have accepted IDs: each with its lane and its time."""
    layout = LaneLayout.from_setting(lanes, partitions)
    for lane in range(layout.lanes):
        own = [(id_, at) for id_, of, at in accepted if of == lane]
        entries = [
            Entry(
                codec.ring_key(CAPACITY, sequence),
                codec.ring_value(sequence, stored_ids.encode_id(id_), Origin(lane, sequence, at)),
                at,
            )
            for sequence, (id_, at) in enumerate(own)
        ]
        offsets = {
            next_key("orders", partition, lanes): 100 + partition for partition in layout.partitions_of(lane)
        }
        offsets[next_key(FORWARD, lane, lanes)] = 5
        meta = Meta(
            CAPACITY, len(own), 0, offsets, {"orders": partitions, "orders.accepted": partitions}, f"i{lane}",
            topic_ids={"orders": "o", FORWARD: "f"}, app="rf", address="orders", rules=RULES, lanes=lanes,
        )  # fmt: skip
        route = Route(Source("bridge", "A" * 22, 0), lane % 2)
        hops = Entry(codec.hops_key(route), codec.hops_value(lane, [lane + 1, lane + 3]))
        if lanes:
            meta = meta._replace(bridged=True)
            entries.append(hops)
        logs.append(lane, [*entries, Entry(codec.META_KEY, codec.encode_meta(meta))])


def _accepted(lanes: int, count: int = 20) -> list[tuple[bytes, int, int]]:
    return [(b"id-%d" % number, number % lanes, 1_000 + number) for number in range(count)]


def _plan(logs: _Logs, partitions: int, lanes: int, **keys: object) -> Regrouping:
    return plan(_address(**keys), partitions, logs.metas(), lanes)


async def _regroup(logs: _Logs, partitions: int, lanes: int, **keys: object) -> Regrouping:
    regrouping = _plan(logs, partitions, lanes, **keys)
    if not regrouping.done:
        work = Regroup(_address(**keys), "rf", regrouping, logs, Steps(None))
        await work.mark()
        ends = {lane: 50 + lane for lane in range(partitions)}
        await work.write(len(logs.logs), Forwarded(FORWARD, "f2", ends))
    return regrouping


async def test_lanes_become_one() -> None:
    """One lane gets the newest IDs of all lanes, ordered by acceptance, and the offsets of all partitions."""
    logs = _Logs(4)
    accepted = _accepted(4)
    accepted[-1] = (b"id-3", 3, 1_019)  # accepted twice, by lanes that did not know of each other
    _begun(0, 4, logs, accepted)

    regrouping = await _regroup(logs, 4, 1)

    assert logs.ids(0) == [b"id-14", b"id-15", b"id-16", b"id-17", b"id-18", b"id-3"]
    meta = logs.metas()[0]
    assert (meta.lanes, meta.capacity, meta.head - meta.floor) == (1, CAPACITY, CAPACITY)
    inputs = {"orders/0": 100, "orders/1": 101, "orders/2": 102, "orders/3": 103}
    assert meta.next_offsets == inputs | {f"{FORWARD}/0": 50}  # a run finds what was forwarded before
    assert (meta.rules, meta.partition_counts) == (RULES, {"orders": 4, "orders.accepted": 4})
    assert meta.floor >= 5  # _RF_SEQ goes on above what any former lane has given
    for lane in (1, 2, 3):
        assert logs.ids(lane) == []
        assert (logs.metas()[lane].lanes, logs.metas()[lane].next_offsets) == (1, {})
    assert logs.journal == [Event(RingEvent.REGROUPED, 0, 4, 1, meta)]
    assert described(regrouping, 0) == (
        "lane orders-0  partitions 0, 1, 2, 3  with the IDs of orders-0, orders-1, orders-2, orders-3"
    )
    assert _plan(logs, 4, 1).done


async def test_a_promise_of_joined_lanes() -> None:
    """The joined ring has the promise of the file, and counts the young IDs for which it has no room."""
    logs = _Logs(4)
    _begun(0, 4, logs, _accepted(4, 10))
    await _regroup(logs, 4, 1, id_cache_size=2, id_cache_size_max=6, id_min_age="7ms")

    assert logs.ids(0) == [b"id-%d" % number for number in range(4, 10)]
    assert logs.metas()[0].promise == Promise(2, 7, 1_009, 2)


async def test_one_lane_is_divided() -> None:
    """Each new lane has all IDs and the offsets of its own partitions. It begins behind the records forwarded before.

    A ring that is joined again is what it was: copies keep the time of their acceptance. A lane for each partition
    has the records of the time before lanes had numbers.
    """
    logs = _Logs(8)
    _begun(1, 8, logs, _accepted(1))
    before = logs.ids(0)

    await _regroup(logs, 8, 4)

    for lane in range(4):
        assert logs.ids(lane) == [b"id-%d" % number for number in range(14, 20)]
        meta = logs.metas()[lane]
        assert meta.next_offsets == {
            f"orders/{lane}": 100 + lane, f"orders/{lane + 4}": 104 + lane, f"{FORWARD}/{lane}": 50 + lane,
        }  # fmt: skip
        assert (meta.lanes, meta.topic_ids) == (4, {"orders": "o", FORWARD: "f2"})
    assert [event.lane for event in logs.journal] == [0, 1, 2, 3]
    assert {meta.incarnation for meta in logs.metas().values()} & {"i0"} == set()
    await _regroup(logs, 8, 2)
    await _regroup(logs, 8, 1)
    assert logs.ids(0) == before
    inputs = {f"orders/{partition}": 100 + partition for partition in range(8)}
    assert logs.metas()[0].next_offsets == inputs | {f"{FORWARD}/0": 50}
    await _regroup(logs, 8, 0)
    for lane, meta in logs.metas().items():
        assert (meta.lanes, meta.next_offsets) == (0, {"orders": 100 + lane, FORWARD: 50 + lane})
        assert logs.ids(lane) == before
    assert len(logs.metas()) == 8


async def test_another_size_at_the_same_time() -> None:
    """A new size counts at once and is in the journal, because no later opening would write it."""
    logs = _Logs(4)
    _begun(0, 4, logs, _accepted(4))

    await _regroup(logs, 4, 1, id_cache_size=100)

    assert logs.ids(0) == [b"id-%d" % number for number in range(20)]
    assert [event[:4] for event in logs.journal] == [
        (RingEvent.REGROUPED, 0, 4, 1),
        (RingEvent.RESIZED, 0, CAPACITY, 100),
    ]


CHANGES = [
    (4, 0, 1), (4, 1, 4), (4, 1, 0), (6, 2, 3), (6, 3, 2), (12, 4, 6), (4, 0, 4), (4, 4, 0), (5, 3, 2),
]  # fmt: skip


def _state(logs: _Logs) -> dict[int, object]:
    """All that counts of the lanes: sequences and incarnations may differ."""
    found: dict[int, object] = {}
    for number, meta in logs.metas().items():
        memory = HopMemory.restored(CAPACITY, logs.restored(number).hops.items())
        routes = {route: (held.floor, [*held.above]) for route, held in memory.routes.items()}
        found[number] = logs.ids(number), routes, meta._replace(head=0, floor=0, incarnation="")
    return found


def _with_many_ids(partitions: int, lanes: int) -> _Logs:
    logs = _Logs(partitions)
    _begun(lanes, partitions, logs, _accepted(LaneLayout.from_setting(lanes, partitions).lanes, 40))
    return logs


@pytest.mark.parametrize("written", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("partitions", "before", "after"), CHANGES)
async def test_killed_at_each_step(partitions: int, before: int, after: int, written: bool) -> None:
    """A regrouping that is killed before or after any write ends in the same state when run again.

    Meanwhile no configuration opens the address once a lane is closed.
    """
    whole, former = _with_many_ids(partitions, before), LaneLayout.from_setting(before, partitions).lanes
    await _regroup(whole, partitions, after)
    assert whole.writes > 1
    for kill_at in range(1, whole.writes + 1):
        logs = _with_many_ids(partitions, before)
        logs.kill_at, logs.written_before = kill_at, written
        with pytest.raises(_KilledError):
            await _regroup(logs, partitions, after)
        if not (written and kill_at == whole.writes):
            metas = logs.metas()
            closed = any(is_marked(meta) for lane, meta in metas.items() if lane < former)
            for lanes, refused in ((after, True), (before, closed)):
                faults = count_faults(_address(lanes=lanes), {"orders": partitions}, live(metas).values())
                assert bool(faults) is refused, (kill_at, lanes)
            assert logs.journal == []
        logs.kill_at = -1
        await _regroup(logs, partitions, after)
        assert _state(logs) == _state(whole), kill_at
        assert [event[:4] for event in logs.journal] == [event[:4] for event in whole.journal]


@pytest.mark.parametrize(
    ("before", "after", "other"), [(2, 1, 0), (2, 0, 1), (2, 4, 1), (0, 1, 2), (1, 4, 2), (4, 2, 2)]
)
async def test_two_at_once(before: int, after: int, other: int) -> None:
    """A regrouping gives up if another one runs during any of its steps, and the other's result stays."""
    alone, whole = _with_many_ids(4, before), _with_many_ids(4, before)
    await _regroup(alone, 4, after)
    await _regroup(whole, 4, other)
    lanes, refusals = range(LaneLayout.from_setting(other, 4).lanes), ""
    for step in range(1, alone.steps + 1):
        logs = _with_many_ids(4, before)
        logs.at_step[step] = functools.partial(_regroup, logs, 4, other)
        with pytest.raises((RegroupError, FencedError)) as raised:
            await _regroup(logs, 4, after)
        refusals += str(raised.value)
        states = _state(logs), _state(whole)
        assert [states[0][lane] for lane in lanes] == [states[1][lane] for lane in lanes], step
        assert [event[:4] for event in logs.journal] == [event[:4] for event in whole.journal]
        # What the first one has closed of lanes that there are no more keeps nobody from another number.
        await _regroup(logs, 4, 3)
        assert [logs.metas()[lane].lanes for lane in range(3)] == [3] * 3
    assert "another regrouping has ended meanwhile: orders has lanes = " in refusals


@pytest.mark.parametrize(("partitions", "former", "after"), [(12, 4, 6), (4, 0, 2)])
async def test_all_lanes_are_closed_before_a_ring_is_written(
    partitions: int, former: int, after: int
) -> None:
    """All lanes, old and new, are closed before a ring is written. Marks can be taken back to the records before them."""
    lanes = former or partitions
    every = max(lanes, after)
    logs = _Logs(every)
    _begun(former, partitions, logs, _accepted(lanes))
    before, rings = logs.metas(), [logs.ids(lane) for lane in range(lanes)]
    work = Regroup(_address(), "rf", _plan(logs, partitions, after), logs, Steps(None))

    await work.mark()

    assert [is_marked(meta) for meta in logs.metas().values()] == [True] * every
    assert [lanes_before(meta) for meta in logs.metas().values()] == [former] * every
    assert [logs.ids(lane) for lane in range(lanes)] == rings
    await work.unmark()
    assert {lane: meta for lane, meta in logs.metas().items() if lane < lanes} == before
    assert plan(_address(), partitions, logs.metas(), former).done


def test_ids_reach_their_homes() -> None:
    """The home lane of an ID gets the IDs of its former home lane, for every hash."""
    for partitions in range(1, 13):
        for before, after in itertools.product(range(partitions + 1), repeat=2):
            regrouping = Regrouping(
                address="orders", partitions=partitions, before=before, after=after, done=False
            )
            for digest in range(partitions):
                home = regrouping.wanted.lane_of(digest)
                assert regrouping.former.lane_of(digest) in regrouping.sources(home)


async def test_hops_move_along() -> None:
    """A regrouped lane keeps, for a route known to several lanes, the highest floor and all hops above it."""
    logs = _Logs(4)
    _begun(4, 4, logs, _accepted(4))

    await _regroup(logs, 4, 1)

    routes = HopMemory.restored(CAPACITY, logs.restored(0).hops.items()).routes
    found = {route.arrived: (held.floor, [*held.above]) for route, held in routes.items()}
    assert found == {0: (2, [3, 5]), 1: (3, [4, 6])}
    assert logs.metas()[0].bridged


def test_refused() -> None:
    """A refused regrouping names the step that has to come first."""
    for changes, lanes, said in (
        ({}, 9, "choose --lanes 4 or fewer, or give the topic more partitions first"),
        ({"partition_counts": {"orders": 3}}, 1, "it had 3 when the lanes of orders began"),
        ({"partition_counts": {"orders.accepted": 9}}, 1, "recorded different partition counts"),
        ({"topic_ids": {"orders": "x"}}, 1, "recorded different topic IDs"),
        ({"rules": {"partitioner": "crc32"}}, 1, "rings adopt orders"),
        ({"lanes": 3}, 1, "recorded different numbers of lanes"),
    ):
        logs = _Logs(4)
        _begun(0, 4, logs, _accepted(4))
        metas = logs.metas()
        metas[1] = metas[1]._replace(**changes)

        with pytest.raises(RegroupError, match=said):
            plan(_address(), 4, metas, lanes)


def test_nothing_to_do() -> None:
    """A regrouping does nothing if no lane has begun, or if lanes have the number already."""
    logs = _Logs(4)
    assert plan(_address(), 4, {}, 2).done
    _begun(2, 4, logs, _accepted(2))
    regrouping = _plan(logs, 4, 2)
    assert regrouping.done
    assert document(regrouping, [], {}, dry_run=True)["lanes"] == []
    assert not _plan(logs, 4, 4).done  # as many as partitions, and still another record
    assert _plan(logs, 8, 4).sources(3) == [1]
    with pytest.raises(RegroupError, match="it had 4 when the lanes of orders began"):
        _plan(logs, 7, 4)


def test_journal_record() -> None:
    """A journal record has its offsets by partition, even if lanes have no number any more."""
    for lanes, offsets in ((2, {"orders/1": 7, "orders/3": 8}), (0, {"orders": 7})):
        meta = Meta(9, 5, 0, offsets, {}, "i", topic_ids={"orders": "o", "other": "x"}, lanes=lanes)
        sent = journal_record(
            empty_batch(), "rf", "orders", Event(RingEvent.REGROUPED, 1, 4, lanes or 4, meta)
        )
        raw = bytes(sent.builder._builder.build())
        value = json.loads(raw[raw.index(b'{"format"') : raw.rindex(b"}") + 1])

        assert (value["format"], value["event"], value["lane"], value["lanes"]) == (3, "regrouped", 1, lanes)
        assert value["next"] == ({"orders/1": 7, "orders/3": 8} if lanes else {"orders/1": 7})
        assert value["topic_ids"] == {"orders": "o"}
