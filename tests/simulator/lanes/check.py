"""Invariants of a settled world of lanes."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Final

from agents.lane.lane import LaneState
from ringfence_kafka.protocol import wire_names
from tables import codec
from tables.codec import Meta, Route, Slot
from tables.hops import HopMemory
from tables.table import LaneTable
from tests.harness.checker import check
from tests.harness.checker.check import Anomaly, Finding
from tests.harness.checker.evidence import Evidence
from tests.harness.history import History, Record, Target, record_of
from tests.simulator.gap_log import in_vain
from tests.simulator.kafka.logs import Log, Stored
from tests.simulator.lanes.world import BEGINNING, LaneWorld, newest_meta
from tests.simulator.names import ACCEPTED, ADDRESS, CHANGELOG, DUPLICATES, OTHER, OTHERS_ACCEPTED, QUARANTINE

_FAR: Final = 1_000_000
ALLOWED = frozenset({Anomaly.OVERRUN, Anomaly.CROSS_LANE})


def faults(world: LaneWorld) -> list[str]:
    violations = [said for process in world.processes for said in process.rights.violations]
    return [
        *violations, *([] if world.recreated else world.cluster.went_back), *_anomalies(world),
        *_states(world), *_numbers(world), *_in_vain(world), *_gaps_in_vain(world), *_leaked(world),
    ]  # fmt: skip


def _leaked(world: LaneWorld) -> Iterable[str]:
    for process in world.processes:
        opened = (
            []
            if process.lanes is None
            else [
                lane
                for lane in process.lanes.lanes
                if lane._opened is not None or lane.state is LaneState.OPENING
            ]
        )
        if len(process.producers) > len(opened):
            yield f"LEAKED: {process.name} has {len(opened)} lanes open, and {len(process.producers)} producers"


def _gaps_in_vain(world: LaneWorld) -> Iterable[str]:
    for number, eaten in enumerate(world.eaten):
        for process in world.processes:
            yield from in_vain(process.gaps, ADDRESS, number, eaten)


def _gone(world: LaneWorld, found: Finding) -> bool:
    """Whether an input was deleted before it was processed, and a log line reports it: nobody can prevent that loss."""
    topic, number, offset = found.places[0]
    return offset in world.eaten[number] and any(
        gap.names(topic, number, offset) for process in world.processes for gap in process.gaps
    )


def _in_vain(world: LaneWorld) -> Iterable[str]:
    if world.plan.calm and world.cluster.transactions.aborted:
        yield f"ABORTED in vain: transactions of {world.cluster.transactions.aborted}"


def history(world: LaneWorld) -> History:
    if world.recreated:
        return _told_apart(world)
    return History(
        ADDRESS,
        world.partitions,
        world.plan.capacity,
        world.lane_at_home if world.forgetful else world.home,
        inputs=[*world.kept, *_records(world, ADDRESS)],
        accepted=_records(world, ACCEPTED)
        + (_records(world, OTHERS_ACCEPTED) if world.plan.envelopes else []),
        diverted=_records(world, DUPLICATES),
        quarantined=_records(world, QUARANTINE),
        divert=world.plan.divert and not world.plan.observe,
        observe=world.plan.observe,
        others={OTHER: Target(OTHERS_ACCEPTED)} if world.plan.envelopes else {},
        # A new ring counts from 0 again, so its numbers prove nothing.
        lanes=0 if world.forgetful else world.plan.lanes,
    )


def _told_apart(world: LaneWorld) -> History:
    """Shift records of a recreated input far behind those of the former topic. The messages' tokens show which topic they belong to."""
    world.generations, generations, world.recreated = {}, world.generations, 0
    told = history(world)
    world.generations, world.recreated = generations, 1

    def moved(each: Record) -> Record:
        return each._replace(offset=each.offset + _FAR * generations.get(each.token or b"", 0))

    def sourced(each: Record) -> Record:
        far = _FAR * generations.get(each.token or b"", 0)
        return each._replace(
            headers=tuple((name, _behind(world, name, value, far)) for name, value in each.headers)
        )

    outputs = [*told.accepted, *told.diverted, *told.quarantined]
    shown = {output.token for output in outputs}
    # Not all of a deleted topic had to be processed: inputs without an output are left out.
    inputs = [moved(input_) for input_ in told.inputs if input_.token in generations or input_.token in shown]
    return replace(
        told,
        inputs=inputs,
        accepted=[sourced(item) for item in told.accepted],
        diverted=[sourced(item) for item in told.diverted],
        quarantined=[sourced(item) for item in told.quarantined],
    )


def _behind(world: LaneWorld, name: str, value: bytes | None, far: int) -> bytes | None:
    if name == wire_names.HEADER_VERDICT and value is not None:
        verdict, _, original = value.partition(b" ")
        moved = _behind(world, wire_names.HEADER_ORIGINAL, original or None, far)
        return value if moved is None else b"%b %b" % (verdict, moved)
    if name not in {wire_names.HEADER_SOURCE, wire_names.HEADER_ORIGINAL} or value is None:
        return value
    place, _, number = value.rpartition(b"/")
    offset = int(number)
    if name == wire_names.HEADER_ORIGINAL:
        # Only the old topic has messages between its beginning and its end.
        old = BEGINNING <= offset < world.old_ends[int(place.rpartition(b"/")[2])]
        far = 0 if old else _FAR
    return b"%b/%d" % (place, offset + far)


def _records(world: LaneWorld, topic: str) -> list[Record]:
    return [
        record_of(topic, log.partition, item)
        for log in world.cluster.topics[topic].logs
        for item in log.committed()
    ]


def _anomalies(world: LaneWorld) -> Iterable[str]:
    allowed = ALLOWED | {Anomaly.FORGOTTEN} if world.forgetful else ALLOWED
    for finding in check.check(history(world)):
        gone = finding.anomaly in {Anomaly.LOST, Anomaly.WRONG_VERDICT} and _gone(world, finding)
        if finding.anomaly not in allowed and not gone:
            yield str(finding)


def _numbers(world: LaneWorld) -> Iterable[str]:
    """Check sequence numbers of accepted records if the address sets lanes. Transactions do not show all of their IDs."""
    lanes, evidence = world.plan.lanes, Evidence(history(world))
    found: dict[int, list[int]] = {number: [] for number in range(lanes)}
    for item in evidence.lines:
        said = item.record.header(wire_names.HEADER_SEQUENCE)
        if said is not None and not lanes:
            yield f"NUMBERED: {item.record.place} says {said!r}, and its address sets no lanes"
        if said is not None and lanes:
            found[item.input.lane].append(int(said))
    for number, numbers in found.items() if not (world.forgetful or world.plan.envelopes) else ():
        meta = newest_meta(world, number)
        head = 0 if meta is None else meta.head
        if sorted(numbers) != list(range(head)):
            yield f"NUMBERED: lane {number} has accepted {head} IDs, and they say {sorted(numbers)}"


def _states(world: LaneWorld) -> Iterable[str]:
    for number, log in enumerate(world.cluster.topics[CHANGELOG].logs):
        records = log.committed()
        yield from _interleaved(log, records)
        metas = [
            codec.decode_meta(record.value)
            for record in records
            if record.key == codec.META_KEY and record.value
        ]
        if world.forgetful:
            continue
        yield from _went_back(log, metas)
        (lane,) = world.owners(number)
        if metas:
            yield from _differing(world, number, metas[-1], records)
        elif lane.opening.table.meta is not None:
            yield f"{CHANGELOG}/{number} is empty, and its lane knows {lane.opening.table.meta}"


def _interleaved(log: Log, records: Iterable[Stored]) -> Iterable[str]:
    """Check that owners never take turns: once a later owner has written, the former writes no more."""
    owners = [record.part.by for record in records if record.part is not None]
    turns = [owner for number, owner in enumerate(owners) if not number or owners[number - 1] != owner]
    if len(turns) != len(set(turns)):
        yield f"{log.topic}/{log.partition}: {len(set(turns))} owners take {len(turns)} turns"


def _went_back(log: Log, metas: list[Meta]) -> Iterable[str]:
    for before, after in pairwise(metas):
        if after.head < before.head:
            yield f"{log.topic}/{log.partition}: head {after.head} follows {before.head}"
        for topic, offset in before.next_offsets.items():
            if after.next_offsets.get(topic, -1) < offset and after.topic_ids == before.topic_ids:
                yield f"{log.topic}/{log.partition}: next {after.next_offsets} follows {before.next_offsets}"


def _forgotten_hops(table: LaneTable, told: str, records: Iterable[Stored]) -> Iterable[str]:
    hops = {
        record.key: record.value
        for record in records
        if record.key is not None and record.value is not None and record.key[:1] == codec.KIND_HOPS
    }
    remembered, written = (
        _remembered(table.hops),
        _remembered(HopMemory.restored(table.ring.capacity, hops.items())),
    )
    if remembered != written:
        yield f"{told} holds the hops {written}, its lane knows {remembered}"


def _remembered(hops: HopMemory) -> dict[Route, tuple[int, list[int]]]:
    return {way: (held.floor, list(held.above)) for way, held in hops.routes.items()}


def _differing(world: LaneWorld, number: int, meta: Meta, records: Iterable[Stored]) -> Iterable[str]:
    (lane,) = world.owners(number)
    table, told = lane.opening.table, f"{CHANGELOG}/{number}"
    slots: dict[bytes, Slot] = {}
    for record in records:
        if record.key is not None and record.value is not None and record.key[:1] == codec.KIND_RING:
            slots[record.key] = codec.decode_ring(record.key, record.value)
    live = {
        slot.sequence: slot
        for slot in slots.values()
        if meta.head - meta.capacity <= slot.sequence < meta.head
    }
    if table.meta != meta:
        yield f"{told} ends with {meta}, its lane knows {table.meta}"
    if len(live) != min(meta.head, meta.capacity):
        yield f"{told}: head {meta.head}, and {len(live)} of {meta.capacity} IDs are there: {sorted(live)}"
    if table.ring.head != meta.head:
        yield f"{told}: head {meta.head}, the ring's is {table.ring.head}"
    found = dict(zip(live, table.find(list(live)), strict=True))
    if found != live:
        yield f"{told} holds {live}, the store {found}"
    known = table.check([slot.id for slot in live.values()], [0] * len(live))
    unknown = [
        slot for slot, original in zip(live.values(), known.originals, strict=True) if original is None
    ]
    if unknown:
        yield f"{told} holds {unknown}, and the ring does not know them"
    yield from _forgotten_hops(table, told, records)
    for topic, partition in lane.cursors:
        committed, offset = world.cluster.committed(topic, partition), meta.next_of(topic, partition)
        if committed is not None and offset is not None and committed > offset:
            yield f"{told} says {offset} of {topic}/{partition}, the group has committed {committed}"
