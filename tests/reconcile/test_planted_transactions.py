"""A run finds each error with transactions, planted by hand in real topics: exactly it, once, and no other."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from app.embedded.broker import EmbeddedBroker
from tests.reconcile.test_runs import Scheduler
from tests.support.reconcile.planted import History, Judged, Part, World

OURS, THEIRS = Part("g", "ours"), Part("h", "theirs", "payments")


def _clean(world: World, at: str) -> None:
    """Resend whole transactions: with an ID on the last part, none at all, one ID on two parts, forwarded, between messages of a group."""
    first = world.arrive(at, b"before")
    one = world.transact(at, OURS, THEIRS, Part("g", "more"), id=b"1")
    last = world.transact(at, OURS, Part("g", headers=(("_AMQ_DUPL_ID", "2"),)))
    world.transact(at, OURS, THEIRS, Part("g", "more"), id=b"1")
    world.transact(
        at, Part("other", headers=(("_AMQ_DUPL_ID", "2"),)), Part("new", headers=(("_AMQ_DUPL_ID", "3"),))
    )
    loose = world.transact(at, Part(None), Part(None, address="payments"), key=None)
    both = world.transact(at, *[Part("g", headers=(("_AMQ_DUPL_ID", "4"),))] * 2)
    after = world.arrive(at, b"after")
    world.accept(first)
    for item in (one, last, loose, both):
        world.accept_parts(item)
    world.accept(after)
    moved = world.transact(at, OURS, THEIRS, id=b"5", key=b"k", partition=1)
    world.forward(moved.record, 0)
    world.accept_parts(moved)
    world.forward(world.transact(at, OURS, THEIRS, id=b"5", key=b"k", partition=1).record, 0)


def _one_lane(world: World, at: str) -> None:
    """Send IDs of parts, of envelopes and of messages to one ring, under any key or partition; it takes those of a unit in order."""
    named = [Part("g", headers=(("_AMQ_DUPL_ID", name),)) for name in ("2", "3")]
    plain = world.arrive(at, b"0", b"x", partition=1)
    one = world.transact(at, *named, id=b"1")
    two = world.transact(
        at, OURS, THEIRS, named[0]._replace(headers=(("_AMQ_DUPL_ID", "4"),)), id=b"5", partition=1
    )
    world.accept(plain)
    world.accept_parts(one)
    world.accept_parts(two)
    for known in (b"3", b"1", b"5"):
        world.arrive(at, known, b"other", partition=1)
    world.transact(at, Part("new"), Part("h", headers=(("_AMQ_DUPL_ID", "0"),)), id=b"6", key=b"z")
    world.accept(world.arrive(at, b"7", None, partition=1))


def _overrun_in_one_lane(world: World, at: str) -> None:
    """Overrun a ring of three: the ID of the first part is out, and that of the last one is not."""
    parts = [Part("g", headers=(("_AMQ_DUPL_ID", name),)) for name in ("1", "2")]
    world.accept_parts(world.transact(at, *parts, id=b"0"))
    world.accept(world.arrive(at, b"3", b"x", partition=1), world.arrive(at, b"4", b"x", partition=1))
    world.accept(world.arrive(at, b"1", b"y", partition=1), partition=1)
    world.accept(world.arrive(at, b"3", b"y", partition=1), partition=1)
    world.accept(world.arrive(at, b"0", b"y", partition=1), partition=1)


def _groups(world: World, at: str) -> None:
    """Send parts whose group and ID follow their own address's rules; an envelope's group is its key."""
    named = Part("k", "x", "grouped", (("group", "red"), ("_AMQ_DUPL_ID", "no ID here")))
    unnamed = Part(None, "y", "grouped")
    transaction = world.transact(at, named, unnamed, id=b"1", key=b"red")
    world.accept_parts(transaction, 1, key=b"red", headers=(*_bytes(named), ("_RF_KEY", b"k")))
    world.accept_parts(transaction, 2, key=b"none", headers=(("_RF_KEY", None),))
    # What is an ID at the one is none at the other: there it is the key, and makes this one a duplicate.
    world.accept(world.arrive(at, b"no ID here", b"qpid.no-group"))
    world.transact(at, named, id=b"2", key=b"other")


def _bytes(part: Part) -> tuple[tuple[str, bytes], ...]:
    return tuple((name, value.encode()) for name, value in part.headers)


def _quarantined(world: World, at: str) -> None:
    """Quarantine whole envelopes: malformed, for an address that is not listed, or too large. Their ID is free."""
    world.quarantine(world.arrive(at, b"1", value=b"no JSON", headers=(("_RF_TX", b"json/1"),)))
    world.quarantine(world.transact(at, OURS, Part(address="unlisted"), id=b"2").record)
    large = world.transact(at, OURS, Part("g", "large" * 9), id=b"3").record
    world.quarantine(large, value=b'{"bytes": %d, "blake2b_256": "00"}' % len(large.value or b""))
    world.accept_parts(world.transact(at, OURS, id=b"3"))


def _torn(world: World, at: str) -> None:
    """Leave out one part of three; the resend is a duplicate."""
    three = OURS, THEIRS, Part("g", "more")
    world.accept_parts(world.transact(at, *three, id=b"1"), 1, 3)
    world.transact(at, *three, id=b"1")


def _lost(world: World, at: str) -> None:
    """Lose all parts of a transaction. Messages around it, and another transaction, are there; another lane knows its ID."""
    world.accept(world.arrive(at, b"1"))
    world.transact(at, OURS, THEIRS, id=b"2")
    world.transact(at, OURS, THEIRS)
    world.accept_parts(world.transact(at, OURS, THEIRS, id=b"3"))
    world.transact(at, OURS, Part("p", "x", "payments", (("_AMQ_DUPL_ID", "3"),)))


def _doubled(world: World, at: str) -> None:
    """Accept one part twice; another transaction was accepted, and is in quarantine too."""
    one, two = (world.transact(at, OURS, Part(f"h{index}"), id=b"%d" % index) for index in range(2))
    world.accept_parts(one)
    world.accept_parts(one, 2)
    world.accept_parts(two)
    world.quarantine(two.record)


def _swapped(world: World, at: str) -> None:
    """Break the order. O1: two parts of one group. O2: two transactions of one key, in a group of another.

    O3: one, and a message of its group.
    """
    one = world.transact(at, OURS, Part("g", "more"), id=b"1")
    world.accept_parts(one, 2)
    world.accept_parts(one, 1)
    two, three = (world.transact(at, Part("i"), id=b"%d" % number) for number in (2, 3))
    world.accept_parts(three)
    world.accept_parts(two)
    plain, four = world.arrive(at, b"4", b"j"), world.transact(at, Part("j"), id=b"5", key=b"j")
    world.accept_parts(four)
    world.accept(plain)


def _corrupted(world: World, at: str) -> None:
    """Swap numbers, and write another count, another time, and the wrong address."""
    one = world.transact(at, Part("g", "1"), Part("h", "2"), id=b"1")
    world.accept_parts(one, 1, number=b"2/2")
    world.accept_parts(one, 2, number=b"1/2")
    two = world.transact(at, Part("i"), Part("j"), Part("k", address="payments"), id=b"2")
    world.accept_parts(two, 1, number=b"1/2")
    world.accept_parts(two, 2, timestamp=1)
    world.accept_parts(two, 3, to=at)


def _phantom(world: World, at: str) -> None:
    """Accept a third part of two, one of a plain message, and an envelope as it came, which loses its parts.

    Also accept a part for an address that may not get it.
    """
    world.accept_parts(one := world.transact(at, OURS, THEIRS, id=b"1"))
    world.accept_parts(one, 1, number=b"3/2")
    world.accept(plain := world.arrive(at, b"2"))
    world.accept(plain, headers=(("_RF_TX_PART", b"1/1"),))
    world.accept(world.transact(at, OURS, id=b"3").record)
    world.accept_parts(world.transact(at, OURS, Part("h", address="elsewhere"), id=b"4"))


def _forgotten(world: World, at: str) -> None:
    """Forget the ID of a part, and one that is the envelope's own the second time."""
    part = Part("g", headers=(("_AMQ_DUPL_ID", "1"),))
    for _ in range(2):
        world.accept_parts(world.transact(at, OURS, part))
    world.accept_parts(world.transact(at, Part("g", headers=(("_AMQ_DUPL_ID", "2"),)), id=b"0"))
    world.accept_parts(world.transact(at, OURS, id=b"2"))


def _cross_lane(world: World, at: str) -> None:
    """Accept an ID of a part in the lane of its transaction, and in that of its own address."""
    world.accept(world.arrive("payments", b"crossed", b"c"))
    crossed = Part("c", "x", "payments", (("_AMQ_DUPL_ID", "crossed"),))
    world.accept_parts(world.transact(at, OURS, crossed, id=b"1", partition=1))


def _diverted(world: World, at: str) -> None:
    """Divert one rightly, by the ID of its second part; divert one of nothing; and leave one out."""
    world.accept_parts(one := world.transact(at, OURS, THEIRS, id=b"1"))
    world.divert(world.transact(at, OURS, Part("g", headers=(("_AMQ_DUPL_ID", "1"),))).record, one.record)
    world.divert(world.transact(at, OURS, THEIRS, id=b"2").record, one.record)
    world.transact(at, OURS, THEIRS, id=b"1")


def _observed(world: World, at: str) -> None:
    """Let transactions pass as duplicates: two rightly, by the own ID and by that of a part; one of nothing; one in part; and leave one out."""
    watched = Part("h", "theirs", "watched")

    def verdict(text: bytes) -> Any:
        return {"verdict": (("_RF_VERDICT", text),)}

    world.accept_parts(one := world.transact(at, OURS, watched, id=b"1"), **verdict(b"ACCEPTED"))
    known = verdict(b"DUPLICATE " + one.record.source)
    world.accept_parts(world.transact(at, OURS, watched, id=b"1"), **known)
    world.accept_parts(world.transact(at, watched, Part("g", headers=(("_AMQ_DUPL_ID", "1"),))), **known)
    world.accept_parts(world.transact(at, OURS, watched, id=b"2"), **known)
    world.accept_parts(world.transact(at, OURS, OURS, id=b"1"), 1, **known)
    world.transact(at, OURS, watched, id=b"1")


def _nothing(_world: World, _at: str) -> None:
    pass


LISTED: dict[str, Any] = {"transaction_addresses": ["payments"]}
PLANTED: dict[str, History] = {
    "clean": (_clean, LISTED, {}),
    "groups": (_groups, {"transaction_addresses": ["grouped"], "group_header": "colour"}, {}),
    "quarantined": (_quarantined, LISTED, {}),
    "torn": (_torn, LISTED, {"TORN": 1}),
    "lost": (_lost, LISTED, {"LOST": 3}),
    "doubled": (_doubled, {}, {"DOUBLED": 2}),
    "swapped": (_swapped, {}, {"REORDERED": 3}),
    "corrupted": (_corrupted, LISTED, {"CORRUPTED": 5}),
    "phantom": (_phantom, LISTED, {"PHANTOM": 4, "LOST": 2}),
    "forgotten": (_forgotten, {}, {"FORGOTTEN": 2}),
    "cross-lane": (_cross_lane, LISTED, {"CROSS-LANE": 1}),
    "one-lane": (_one_lane, {**LISTED, "lanes": 1}, {}),
    "one-lane-overrun": (
        _overrun_in_one_lane,
        {"lanes": 1, "id_cache_size": 3},
        {"OVERRUN": 2, "FORGOTTEN": 1},
    ),
    "diverted": (_diverted, {**LISTED, "duplicates": "divert"}, {"WRONG-VERDICT": 1, "LOST": 1}),
    "observed": (
        _observed,
        {"transaction_addresses": ["watched"], "mode": "observe"},
        {"WRONG-VERDICT": 1, "TORN": 1, "LOST": 1},
    ),
}
OTHERS: dict[str, History] = {
    "payments": (_nothing, {}, {}),
    "grouped": (_nothing, {"group_header": "group", "default_group": "none", "duplicate_id_from": "key"}, {}),
    "elsewhere": (_nothing, {}, {"PHANTOM": 1}),
    "watched": (_nothing, {"mode": "observe"}, {}),
}
"""Addresses that get parts of several transactions."""
HISTORIES: dict[str, History] = {
    **{f"transacted-{name}": history for name, history in PLANTED.items()},
    **OTHERS,
}
"""By the names of their addresses in the world that all planted histories share."""


@pytest.mark.parametrize("name", HISTORIES)
def test_planted(judged: Judged, name: str) -> None:
    """A run finds each planted error, as often as it was planted, and nothing else."""
    assert judged.found(name) == HISTORIES[name][2], judged.details(name)


def test_what_torn_says(judged: Judged) -> None:
    """A TORN row lists the accepted parts with their topics and the missing parts; its place is that of the envelope."""
    at, payments = (judged.world.names[name] for name in ("transacted-torn", "payments"))
    (torn,) = [row for row in judged.rows if row["anomaly"] == "TORN" and row["address"] == at]
    ours, theirs = f"{at}.accepted", f"{payments}.accepted"

    assert torn["detail"] == f"parts 1, 3 of 3 accepted, in {ours}; missing: part 2, for {theirs}"
    assert (torn["topic"], torn["offset"], torn["part_number"], torn["id"]) == (at, 0, 0, b"1")


def test_counts_are_of_envelopes(judged: Judged) -> None:
    """An envelope counts as one input with any parts; its parts elsewhere do not count as inputs of that address."""
    clean, payments = judged.summary("transacted-clean"), judged.summary("payments")

    assert (clean["input"], clean["accepted"], clean["duplicates"], clean["unchecked"]) == (10, 7, 3, 1)
    assert (payments["input"], payments["accepted"]) == (1, 1)


@pytest.mark.long
def test_a_cut_between(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path) -> None:
    """The next run judges once the transactions that wait, or are accepted ahead of the cut, in two addresses; torn ones too."""
    world = World(broker.bootstrap_servers, tmp_path, {"a": LISTED, "payments": {}})
    scheduler = Scheduler(spark, world)
    waits = world.transact("a", OURS, THEIRS, id=b"1", key=b"k")
    world.forward(waits.record, 1)
    world.accept_parts(waits)
    world.commit(forward=0)
    ahead, torn = (world.transact("a", OURS, THEIRS, Part("i"), id=b"%d" % number) for number in (2, 3))
    world.accept_parts(ahead)
    world.accept_parts(torn, 2)
    world.flush()
    assert scheduler.run(input=1, accepted=0, in_flight=3) == {}

    world.forward(world.transact("a", OURS, THEIRS, id=b"1", key=b"k").record, 1)
    world.commit()
    assert scheduler.run(input=4, accepted=3, duplicates=1, in_flight=0) == {"TORN": 1}
    assert scheduler.runs.acknowledge() is not None

    # A resend of what was torn is a duplicate; a part that comes after all is one too many.
    world.transact("a", OURS, THEIRS, Part("i"), id=b"3")
    world.accept_parts(torn, 1)
    world.commit()
    assert scheduler.run(input=1, accepted=0, duplicates=1) == {"DOUBLED": 1}
    assert scheduler.address("payments")["input"] == 0
