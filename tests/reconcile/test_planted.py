"""A run finds exactly the anomalies planted by hand in real topics, and no other."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from app.embedded.broker import EmbeddedBroker
from reconcile.anomalies.finders import order
from reconcile.page.report_data import Figures
from tests.support.reconcile.planted import History, In, Judged, World, judged_histories, set_few


def _clean(world: World, at: str) -> None:
    """Resends, records without ID or group, forwarded ones, quarantined ones, keys that are not the group."""
    first, second = world.arrive(at, b"1"), world.arrive(at, b"2", b"h")
    world.arrive(at, b"1")
    plain, loose = world.arrive(at), world.arrive(at, b"5", None)
    world.accept(first, second, plain)
    world.accept(loose, partition=1)
    world.quarantine(world.arrive(at, b"6"), value=b'{"bytes": 5, "blake2b_256": "00"}', key=None, headers=())
    moved = world.arrive(at, b"7", b"k", partition=1)
    world.forward(moved, 0)
    world.accept(moved)
    again = world.arrive(at, b"7", b"k", partition=1)
    world.forward(again, 0)


def _lost(world: World, at: str) -> None:
    """Lose an ID, a message without one, and IDs that only another lane, and a later record, know."""
    world.accept(world.arrive(at, b"1"), world.arrive(at))
    world.arrive(at, b"2")
    world.arrive(at)
    world.accept(world.arrive(at, b"3", b"other", partition=1), partition=1)
    world.arrive(at, b"3", b"g")
    world.arrive(at, b"4")
    world.accept(world.arrive(at, b"4"))


def _doubled(world: World, at: str) -> None:
    one, two = world.arrive(at, b"1"), world.arrive(at, b"2")
    world.accept(one, two, one)


def _phantom(world: World, at: str) -> None:
    """Accept records of no source, of one beyond the end, and of another topic."""
    one = world.arrive(at, b"1")
    world.accept(one)
    world.accept(one, source=None)
    world.accept(one, source=f"{one.address}/0/99".encode())
    world.accept(one, source=b"elsewhere/0/0")


def _reordered(world: World, at: str) -> None:
    one, two, three = (world.arrive(at, b"%d" % index) for index in range(3))
    other = world.arrive(at, b"9", b"h")
    world.accept(other, two, one, three)


def _forgotten(world: World, at: str) -> None:
    world.accept(world.arrive(at, b"1"), world.arrive(at, b"2"), world.arrive(at, b"1"))


def _overrun(world: World, at: str) -> None:
    """Repeat an ID in a ring of two, with two others between."""
    world.accept(*(world.arrive(at, name) for name in (b"1", b"2", b"3", b"1")))


def _told(world: World, at: str) -> None:
    """Repeat an ID as if forgotten, but with the ring cleared between the two."""
    world.accept(world.arrive(at, b"1"), world.arrive(at, b"2"), world.arrive(at, b"1"))
    world.tell(at, 0, 20_000, 20_000, 2)


def _cross_lane(world: World, at: str) -> None:
    world.accept(world.arrive(at, b"1", b"g"))
    world.accept(world.arrive(at, b"1", b"h", partition=1), partition=1)


def _wrong_verdict(world: World, at: str) -> None:
    """Divert one duplicate rightly, one as a duplicate of itself, and two without an original."""
    one = world.arrive(at, b"1")
    world.accept(one)
    world.divert(world.arrive(at, b"1"), one)
    trapped = world.arrive(at, b"2")
    world.divert(trapped, trapped)
    world.divert(world.arrive(at, b"3"), one)
    world.divert(world.arrive(at, b"4"), None)


def _marked(record: In, verdict: bytes) -> dict[str, Any]:
    return {"headers": (*record.headers, ("_RF_VERDICT", verdict))}


def _observe(world: World, at: str, id_: bytes, verdict: bytes, key: bytes = b"g") -> In:
    """Write an input, and the accepted record of an address that observes."""
    record = world.arrive(at, id_, key)
    world.accept(record, **_marked(record, verdict))
    return record


def _observed(world: World, at: str) -> None:
    """Let two duplicates pass with their originals, one of them without its place, among what is new or has no ID."""
    one = _observe(world, at, b"1", b"ACCEPTED")
    _observe(world, at, b"2", b"ACCEPTED")
    _observe(world, at, b"1", b"DUPLICATE " + one.source)
    _observe(world, at, b"2", b"DUPLICATE")
    _observe(world, at, b"", b"UNCHECKED")


def _observed_wrongly(world: World, at: str) -> None:
    """Mark one duplicate of itself and two of nothing, call a duplicate accepted, and accept an observed one twice.

    In another group a duplicate passes a later message.
    """
    one = _observe(world, at, b"1", b"ACCEPTED")
    trapped = world.arrive(at, b"2")
    world.accept(trapped, **_marked(trapped, b"DUPLICATE " + trapped.source))
    _observe(world, at, b"3", b"DUPLICATE " + one.source)
    _observe(world, at, b"4", b"DUPLICATE")
    _observe(world, at, b"1", b"ACCEPTED")
    again = _observe(world, at, b"1", b"DUPLICATE " + one.source)
    world.accept(again, **_marked(again, b"DUPLICATE " + one.source))
    other, late = _observe(world, at, b"5", b"ACCEPTED", b"h"), world.arrive(at, b"5", b"h")
    _observe(world, at, b"6", b"ACCEPTED", b"h")
    world.accept(late, **_marked(late, b"DUPLICATE " + other.source))


def _observed_at_times(world: World, at: str) -> None:
    """Observe, then enforce, then observe again: the duplicate between is dropped, and those before and after pass."""
    one = _observe(world, at, b"1", b"ACCEPTED")
    _observe(world, at, b"1", b"DUPLICATE " + one.source)
    world.accept(world.arrive(at, b"2"))
    world.arrive(at, b"1")
    world.arrive(at, b"2")
    _observe(world, at, b"2", b"DUPLICATE")


def _corrupted(world: World, at: str) -> None:
    """Change value, headers, key and timestamp; and make a null empty.

    In quarantine change a key and a value; a record that is named by its size may have neither.
    """
    one, two, three = (world.arrive(at, b"%d" % index, b"g%d" % index) for index in range(3))
    four, five = world.arrive(at, b"4", b"g4", value=None), world.arrive(at, b"5", b"g5")
    world.accept(one, value=b"other")
    world.accept(two, headers=two.headers[1:])
    world.accept(three, key=b"g9")
    world.accept(four, value=b"")
    world.accept(five, timestamp=five.timestamp + 1)
    world.quarantine(world.arrive(at, b"6"), key=b"other")
    world.quarantine(world.arrive(at, b"7"), value=b"other")
    world.quarantine(world.arrive(at, b"8"))


def _conflict_not_diverted(world: World, at: str) -> None:
    """Divert one conflict, and leave another out; a resend with the value of its original may be left out."""
    one = world.arrive(at, b"1")
    world.accept(one)
    world.arrive(at, b"1")
    world.divert(world.arrive(at, b"1", value=b"another"), one)
    world.arrive(at, b"1", value=b"a third")


def _gap(world: World, at: str) -> None:
    """Delete two records, one of which was accepted twice: its two outputs are still there."""
    records = [world.arrive(at, b"%d" % index) for index in range(3)]
    world.accept(*records, records[0])
    world.delete_before(world.names[at], 2)


def _gap_in_the_output(world: World, at: str) -> None:
    """Delete an accepted record, which may have been accepted and is not called lost."""
    world.accept(*(world.arrive(at, b"%d" % index) for index in range(3)))
    world.delete_before(f"{world.names[at]}.accepted", 1)


def _aborted(world: World, at: str) -> None:
    """Write aborted records and markers, amid input and output and at their very ends; the offsets are past them."""
    name = world.names[at]
    one = world.arrive(at, b"1")
    world.abort(name, 3)
    two = world.arrive(at, b"2")
    world.abort(name, 2)
    world.accept(one)
    world.abort(f"{name}.accepted", 3)
    world.accept(two)
    world.abort(f"{name}.accepted", 2)
    world.abort(f"{name}.quarantine", 2)


def _redriven(world: World, at: str) -> None:
    """Republish refused records. Some are accepted, refused again, or dropped because a corrected copy was accepted meanwhile."""
    refused = [world.arrive(at, b"%d" % index) for index in range(3)]
    for item in refused:
        world.quarantine(item)
    world.accept(world.arrive(at, b"2", value=b"corrected"))
    counted = (("trace", b"1"), ("empty", None), ("_RF_REDRIVEN", b"1"))
    again = [world.arrive(at, b"%d" % index, headers=counted) for index in range(3)]
    kept = tuple(header for header in again[0].headers if header[0] != "_RF_REDRIVEN")
    world.accept(again[0], headers=kept)
    world.quarantine(again[1])


def _seconds(world: World, at: str) -> None:
    """Send timestamps of one producer in seconds instead of Kafka's milliseconds."""
    records = [world.arrive(at, b"%d" % index) for index in range(9)]
    world.accept(*records, world.arrive(at, b"9", timestamp=1_795_262_400))


def _one_lane(world: World, at: str) -> None:
    """Send duplicates to one ring for both partitions.

    They come under other groups, without a group, without an ID, refused, and across a change that the journal has.
    """
    first, second = world.arrive(at, b"1"), world.arrive(at, b"2", b"h", partition=1)
    world.arrive(at, b"2", b"other")
    world.arrive(at, b"1", None, partition=1)
    loose, plain = world.arrive(at, b"3", None, partition=1), world.arrive(at)
    world.accept(second, partition=1)
    world.accept(first, plain)
    world.accept(loose, partition=1)
    world.quarantine(world.arrive(at, b"6"))
    world.tell_lanes(at, "resized", 9, 20_000, (1, 1))
    world.arrive(at, b"3", b"last")


def _forgotten_in_one_lane(world: World, at: str) -> None:
    """Repeat an ID under two groups, in two partitions, of the input and of the output; another one is in between."""
    world.accept(world.arrive(at, b"1", b"g"), world.arrive(at, b"2", b"g"))
    world.accept(world.arrive(at, b"1", b"h", partition=1), partition=1)


def _told_in_one_lane(world: World, at: str) -> None:
    """Repeat an ID in two partitions, then clear the ring, then repeat it again."""
    world.accept(world.arrive(at, b"1", b"g"))
    world.accept(world.arrive(at, b"1", b"h", partition=1), partition=1)
    world.tell_lanes(at, "cleared", 20_000, 20_000, (1, 0))
    world.accept(world.arrive(at, b"1", b"g"))


def _lost_in_one_lane(world: World, at: str) -> None:
    """Lose an ID that the ring of two had forgotten, in the partition that its original did not come by.

    Also lose an ID and a message without one, which are nowhere in the lane.
    """
    world.accept(*(world.arrive(at, name) for name in (b"1", b"2", b"3")))
    world.accept(world.arrive(at, b"4", b"h", partition=1))
    world.arrive(at, b"1", b"h", partition=1)
    world.arrive(at, b"3", b"h", partition=1)
    world.arrive(at, b"9", partition=1)
    world.arrive(at, partition=1)


def _numbered_twice(world: World, at: str) -> None:
    """Write for one lane with two workers at once: neither knew what the other accepted."""
    number = (("_RF_SEQ", b"7"),)
    for partition in range(2):
        item = world.arrive(at, b"%d" % partition, b"g%d" % partition, partition)
        world.accept(item, headers=item.headers + number, partition=partition)


def _regrouped(world: World, at: str) -> None:
    """Merge two lanes into one, which knows the newest IDs of both: it forgets one of them under another group."""
    one, other = world.arrive(at, b"1", b"g"), world.arrive(at, b"2", b"h", partition=1)
    world.accept(one, headers=one.headers)
    world.accept(other, headers=other.headers, partition=1)
    world.tell_lanes(at, "regrouped", 2, 1, (1, 1))
    world.arrive(at, b"2", b"g")
    world.accept(world.arrive(at, b"1", b"h", partition=1), partition=1)


PLANTED: dict[str, History] = {
    "clean": (_clean, {}, {}),
    "lost": (_lost, {}, {"LOST": 4}),
    "doubled": (_doubled, {}, {"DOUBLED": 1}),
    "phantom": (_phantom, {}, {"PHANTOM": 3}),
    "reordered": (_reordered, {}, {"REORDERED": 1}),
    "forgotten": (_forgotten, {}, {"FORGOTTEN": 1}),
    "overrun": (_overrun, {"id_cache_size": 2}, {"OVERRUN": 1}),
    "off": (_forgotten, {"id_cache_size": 0}, {}),
    "told": (_told, {}, {"OVERRUN": 1}),
    "cross-lane": (_cross_lane, {}, {"CROSS-LANE": 1}),
    "wrong-verdict": (_wrong_verdict, {"duplicates": "divert"}, {"WRONG-VERDICT": 3}),
    "observed": (_observed, {"mode": "observe"}, {}),
    "observed-wrongly": (
        _observed_wrongly,
        {"mode": "observe", "duplicates": "divert"},
        {"WRONG-VERDICT": 3, "FORGOTTEN": 1, "DOUBLED": 1, "REORDERED": 1},
    ),
    "observed-at-times": (_observed_at_times, {"mode": "observe"}, {}),
    "enforced-at-times": (_observed_at_times, {}, {}),
    "conflict-not-diverted": (_conflict_not_diverted, {"on_conflict": "divert"}, {"LOST": 1}),
    "corrupted": (_corrupted, {}, {"CORRUPTED": 7}),
    "gap": (_gap, {}, {"GAP": 1, "DOUBLED": 1}),
    "gap-in-the-output": (_gap_in_the_output, {}, {"GAP": 2}),
    "aborted": (_aborted, {}, {}),
    "redriven": (_redriven, {}, {}),
    "seconds": (_seconds, {}, {}),
    "one-lane": (_one_lane, {"lanes": 1}, {}),
    "one-lane-forgotten": (_forgotten_in_one_lane, {"lanes": 1}, {"FORGOTTEN": 1}),
    "one-lane-told": (_told_in_one_lane, {"lanes": 1}, {"OVERRUN": 1, "FORGOTTEN": 1}),
    "one-lane-lost": (_lost_in_one_lane, {"lanes": 1, "id_cache_size": 2}, {"LOST": 3}),
    "one-lane-numbered-twice": (_numbered_twice, {"lanes": 1}, {"FORGOTTEN": 1}),
    "two-lanes": (_cross_lane, {"lanes": 2}, {"CROSS-LANE": 1}),
    "regrouped": (_regrouped, {"lanes": 1}, {"FORGOTTEN": 1}),
}


@pytest.fixture(
    scope="module",
    params=[pytest.param(False, id="few"), pytest.param(True, id="as-of-many", marks=pytest.mark.long)],
)
def plain(
    request: pytest.FixtureRequest,
    broker: EmbeddedBroker,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Judged:
    """Return the run over all planted histories; or one over these alone, without transactions, with the plan for many records."""
    if not request.param:
        judged: Judged = request.getfixturevalue("judged")
        return judged
    with pytest.MonkeyPatch.context() as patch:
        set_few(patch, 0)
        return judged_histories(broker.bootstrap_servers, spark, tmp_path_factory.mktemp("many"), PLANTED)


@pytest.mark.parametrize("name", PLANTED)
def test_planted(plain: Judged, name: str) -> None:
    """A run finds each planted anomaly, as often as it was planted, and nothing else."""
    assert plain.found(name) == PLANTED[name][2], plain.details(name)


def test_who_it_was(plain: Judged) -> None:
    """Each row names its ID and its group, even for an output: nobody has to read the record to know whom it concerns."""
    names = {plain.world.names[name] for name in PLANTED}
    rows = [row for row in plain.rows if row["address"] in names]
    strays = [row for row in rows if row["anomaly"] == "PHANTOM"]
    repeated = {"FORGOTTEN", "OVERRUN", "CROSS-LANE", "DOUBLED"}
    named = [row for row in rows if row["anomaly"] in repeated and row["partition"] is not None]

    assert {row["anomaly"] for row in named} == repeated
    assert all(row["id"] is not None and row["group"] is not None for row in named)
    assert {(bytes(row["id"]), bytes(row["group"])) for row in strays} == {(b"1", b"g")}


@pytest.mark.long
def test_nothing_is_forwarded(
    broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run over many records checks order by partitions first, and still finds all that is out of order."""
    set_few(monkeypatch, 0)
    asked: list[bool] = []
    may_be_broken = order.may_be_broken

    def noted(evidence: DataFrame, blocks: DataFrame) -> bool:
        asked.append(may_be_broken(evidence, blocks))
        return asked[-1]

    monkeypatch.setattr(order, "may_be_broken", noted)
    histories = {name: PLANTED[name] for name in ("lost", "doubled", "forgotten", "overrun", "reordered")}
    found = judged_histories(broker.bootstrap_servers, spark, tmp_path, histories)

    assert {name: found.found(name) for name in histories} == {name: PLANTED[name][2] for name in histories}
    assert asked == [True]


def test_rings(plain: Judged) -> None:
    """The report gives the ring that would have caught the resends, and from seconds of traffic recommends none.

    A cleared ring counts with the longest possible distance; without resends the present size stays.
    """
    expected = {
        "overrun": (2, 3, 3), "clean": (20_000, 3, 3), "told": (20_000, 2, 2), "wrong-verdict": (20_000, 1, 1),
        "off": (0, 0, 0), "cross-lane": (20_000, 0, 0), "lost": (20_000, 0, 0),
    }  # fmt: skip
    found = {name: plain.summary(name)["ring"] for name in expected}
    shown = ("capacity", "needed", "resend_distance_p99")

    assert {name: tuple(ring[item] for item in shown) for name, ring in found.items()} == expected
    assert {ring["recommended"] for ring in found.values()} == {None}


def test_figures(plain: Judged) -> None:
    """The figures have the ring's IDs since it was cleared, the input by time, and each anomaly with its place."""
    kept = Path(plain.world.settings.reconcile.state_dir) / "results" / "000001" / "figures.json"
    by_name = {item.name: item for item in Figures.from_json(kept.read_text()).addresses}
    found = {name: by_name[plain.world.names[name]] for name in PLANTED}
    used = {name: found[name].lanes[0].ring_used for name in ("told", "forgotten", "overrun", "off")}

    assert used == {"told": 1, "forgotten": 3, "overrun": 2, "off": 0}
    for name, figures in found.items():
        counts = plain.summary(name)
        assert sum(moment.records for moment in figures.moments) + figures.strays == counts["input"]
        assert figures.strays == (name == "seconds")
        assert figures.step_ms < 3_600_000
        assert sum(moment.duplicates for moment in figures.moments) == counts["duplicates"]
        assert sum(lane.duplicates for lane in figures.lanes) == counts["duplicates"]
        assert Counter(finding.anomaly for finding in figures.findings) == plain.found(name)
    largest = [(group.name, group.records) for group in found["clean"].groups_largest]
    assert largest == [("g", 4), ("k", 2), ("h", 1)]
