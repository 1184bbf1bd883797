"""A run finds each error with records of bridges, planted by hand in real topics: exactly it, once, and no other."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from app.embedded.broker import EmbeddedBroker
from tests.reconcile.test_runs import Scheduler
from tests.support.reconcile.planted import SOURCE, History, In, Judged, Part, World

IGNORE: dict[str, Any] = {"ids": b"ignore"}
OTHER = b"to-paris/BBBBBBBBBBBBBBBBBBBBBB/0"


def _clean(world: World, at: str) -> None:
    """Send bridged records that are all handled rightly.

    They come again, late, or from the start; with a known own ID, or an ignored one; with passed members; of another source; forwarded.
    """
    first = world.bridge(at, 0, id=b"1")
    second = world.bridge(at, 1, passed=b"berlin", more=(("_RF_HOPS", b"of repeats the last"),), **IGNORE)
    world.bridge(at, 0, id=b"1")
    third = world.bridge(at, 4, 4, id=b"1", passed=b"berlin,paris", **IGNORE)
    world.bridge(at, 1, **IGNORE)
    world.bridge(at, 3, id=b"5")  # below what was confirmed
    world.bridge(at, 5, 4, id=b"1")
    world.bridge(at, 5, 4, id=b"fresh")
    other = world.bridge(at, 0, source=OTHER)
    own = world.arrive(at, b"2", headers=(("_RF_HOPS", b"forged"),))
    unconfirmed = world.bridge(at, 6, None, source=OTHER)
    world.accept(first)
    world.accept(second, headers=(second.headers[0], second.headers[-1]))
    world.accept(third, other)
    world.accept(own, headers=own.headers[1:])
    world.accept(unconfirmed)
    moved, again = (world.bridge(at, 7, 7, key=b"k", partition=1, id=b"7") for _ in range(2))
    for item in (moved, again):
        world.forward(item, 0)
    world.accept(moved)
    world.quarantine(world.arrive(at, headers=(("_RF_BRIDGE_DUPL_ID", b"nonsense"),)))


def _lost(world: World, at: str) -> None:
    """Lose new hops without an ID that counts, hops known only elsewhere, and both of two.

    Elsewhere is another lane, another source, or another bridge.
    """
    world.accept(world.bridge(at, 0, 0, key=b"other", partition=1), partition=1)
    world.bridge(at, 0, 0)
    world.accept(world.bridge(at, 1, 1, source=OTHER))
    world.bridge(at, 1, 0, id=b"1", **IGNORE)
    world.bridge(at, 1, 0, id=b"1", **IGNORE)
    world.accept(world.bridge(at, 9, 2, id=b"2"))
    world.bridge(at, 2, 2, id=b"3", **IGNORE)


def _forgotten(world: World, at: str) -> None:
    """Accept a hop again; one below the confirmed; one with an own ID; and one noted although its ID was known."""
    world.accept(*(world.bridge(at, 0) for _ in range(2)))
    world.accept(world.bridge(at, 9, 8), world.bridge(at, 3, 0))
    world.accept(*(world.bridge(at, 10, 8, id=b"1") for _ in range(2)))
    world.bridge(at, 11, 8, id=b"1")
    world.accept(world.bridge(at, 11, 8, **IGNORE))


def _by_id(world: World, at: str) -> None:
    """Send one ID over hops of two sources: it counts, unless the record ignores IDs."""
    world.accept(world.bridge(at, 0, id=b"1"), world.bridge(at, 0, id=b"1", source=OTHER))
    world.accept(world.bridge(at, 1, id=b"1", source=OTHER, **IGNORE), world.arrive(at, b"2"))
    world.accept(world.bridge(at, 2, id=b"2", source=OTHER, **IGNORE))


def _apart(world: World, at: str) -> None:
    """Repeat hops in two lanes; by two partitions of one lane; and by one that was confirmed elsewhere."""
    world.accept(world.bridge(at, 0), world.bridge(at, 0, key=b"h", partition=1), partition=0)
    for offset in (1, 2):
        world.accept(
            one := world.bridge(at, offset, key=b"k", partition=1), world.bridge(at, offset, 1, key=b"k")
        )
        world.forward(one, 0)
    world.accept(told := world.bridge(at, 9, 2, key=b"k", partition=1))
    world.forward(told, 0)


def _diverted(world: World, at: str) -> None:
    """Divert duplicates rightly: by hop without an original, and by ID with one.

    Also divert one of nothing, one as a duplicate of its own ID, and leave one out.
    """
    world.accept(one := world.bridge(at, 0, id=b"1"))
    world.divert(world.bridge(at, 0, id=b"1"), None)
    world.divert(world.bridge(at, 1, id=b"1"), one)
    world.divert(world.bridge(at, 1, **IGNORE), None)
    world.divert(world.bridge(at, 2, **IGNORE), None)
    world.divert(world.bridge(at, 3, id=b"3"), None)
    world.bridge(at, 0, id=b"1")


def _corrupted(world: World, at: str) -> None:
    """Leave headers of bridges, and drop, change or forge passed members."""
    records = [world.bridge(at, index, passed=b"berlin", key=b"g%d" % index) for index in range(3)]
    plain = world.arrive(at, b"1", b"plain")
    world.accept(records[0], headers=records[0].headers)
    world.accept(records[1], headers=records[1].headers[:1])
    world.accept(records[2], headers=(*records[2].headers[:1], ("_RF_HOPS", b"paris")))
    world.accept(plain, headers=(*plain.headers, ("_RF_HOPS", b"berlin")))


def _malformed(world: World, at: str) -> None:
    """Accept or drop malformed hops that should be refused.

    They confirm more than a bridge can have, or have an unknown word, no offset, or no topic ID.
    """
    hops = [
        (("_RF_BRIDGE_DUPL_ID", b"%b/5" % SOURCE), ("_RF_BRIDGE_CONFIRMED", b"6")),
        (("_RF_BRIDGE_DUPL_ID", b"%b/5" % SOURCE), ("_RF_BRIDGE_IDS", b"perhaps")),
        (("_RF_BRIDGE_DUPL_ID", b"%b/05" % SOURCE),),
        (("_RF_BRIDGE_DUPL_ID", b"to-paris/short/0/5"),),
    ]
    for hop in hops:
        world.accept(world.arrive(at, headers=hop))
    world.arrive(at, b"1", headers=hops[0])
    world.accept(world.arrive(at, b"1"))


def _transactions(world: World, at: str) -> None:
    """Send envelopes, each of which is one hop with any IDs in its parts; some ignore their IDs."""
    own = Part("g", headers=(("_AMQ_DUPL_ID", "1"),))

    def hop(offset: int, *more: tuple[str, bytes]) -> Any:
        return {"more": (("_RF_BRIDGE_DUPL_ID", b"%b/%d" % (SOURCE, offset)), *more)}

    world.accept_parts(world.transact(at, own, Part("h"), **hop(0)))
    world.transact(at, own, Part("h"), **hop(0))
    world.transact(at, own, **hop(1))
    world.accept_parts(world.transact(at, own, **hop(2, ("_RF_BRIDGE_IDS", b"ignore"))))
    world.transact(at, own, **hop(3, ("_RF_BRIDGE_IDS", b"ignore")))
    world.accept_parts(world.transact(at, Part("i"), **hop(2)))


def _observed(world: World, at: str) -> None:
    """Drop a copy of a hop, and let a new hop with a known ID pass; let a copy of that one pass, too; and lose a hop."""

    def marked(record: In, verdict: bytes) -> None:
        left = tuple(header for header in record.headers if not header[0].startswith("_RF_BRIDGE_"))
        world.accept(record, headers=(*left, ("_RF_VERDICT", verdict)))

    marked(one := world.bridge(at, 0, id=b"1"), b"ACCEPTED")
    world.bridge(at, 0, id=b"1")
    for _ in range(2):
        marked(world.bridge(at, 1, id=b"1"), b"DUPLICATE " + one.source)
    world.bridge(at, 2, id=b"1")


PLANTED: dict[str, History] = {
    "clean": (_clean, {}, {}),
    "lost": (_lost, {}, {"LOST": 3}),
    "forgotten": (_forgotten, {}, {"FORGOTTEN": 4}),
    "by-id": (_by_id, {}, {"FORGOTTEN": 1}),
    "apart": (_apart, {}, {"CROSS-LANE": 1, "FORGOTTEN": 1, "OVERRUN": 1}),
    "diverted": (_diverted, {"duplicates": "divert"}, {"WRONG-VERDICT": 2, "LOST": 1}),
    "corrupted": (_corrupted, {}, {"CORRUPTED": 4}),
    "malformed": (_malformed, {}, {"PHANTOM": 4, "LOST": 1}),
    "transactions": (_transactions, {}, {"LOST": 1, "FORGOTTEN": 1}),
    "observed": (_observed, {"mode": "observe", "duplicates": "divert"}, {"LOST": 1, "FORGOTTEN": 1}),
}


HISTORIES: dict[str, History] = {f"bridged-{name}": history for name, history in PLANTED.items()}
"""By the names of their addresses in the world that all planted histories share."""


@pytest.mark.parametrize("name", PLANTED)
def test_planted(judged: Judged, name: str) -> None:
    """A run finds each planted error, as often as it was planted, and nothing else."""
    at = f"bridged-{name}"

    assert judged.found(at) == PLANTED[name][2], judged.details(at)


def test_counts(judged: Judged) -> None:
    """A duplicate by its hop is counted apart from duplicates by ID, and no ring has caught it."""
    clean, diverted = (judged.summary(f"bridged-{name}") for name in ("clean", "diverted"))
    names = ("input", "accepted", "duplicates", "bridge_duplicates", "quarantined", "unchecked")

    assert tuple(clean[name] for name in names) == (14, 7, 6, 5, 1, 4)
    assert clean["ring"]["resend_distance_p99"] == 1
    assert tuple(diverted[name] for name in names[:4]) == (7, 1, 5, 2)


@pytest.mark.long
def test_runs(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path) -> None:
    """Later runs know a lane's confirmed hops and those above. They excuse a resend, and name one that is accepted."""
    world = World(broker.bootstrap_servers, tmp_path, {"a": {}})
    scheduler = Scheduler(spark, world)
    world.accept(world.bridge("a", 0), world.bridge("a", 7, 3, **IGNORE, id=b"1"))
    waits = world.bridge("a", 5, 3, key=b"k", partition=1)
    world.forward(waits, 0)
    world.commit(forward=0)
    assert scheduler.run(input=3, accepted=2, in_flight=1) == {}

    world.accept(waits)
    world.forward(world.bridge("a", 5, 3, key=b"k", partition=1), 0)
    world.bridge("a", 2)
    world.accept(world.arrive("a", b"1"))
    world.commit()
    assert scheduler.run(input=4, accepted=2, duplicates=2, bridge_duplicates=2, in_flight=0) == {}

    world.bridge("a", 7, 3, id=b"1", **IGNORE)
    world.accept(world.bridge("a", 1), world.bridge("a", 7, 3, **IGNORE))
    world.forward(late := world.bridge("a", 5, 0, key=b"k", partition=1), 0)
    world.accept(late)
    world.bridge("a", 5, 3)
    world.bridge("a", 6, 3, **IGNORE)
    world.commit()
    found = {"FORGOTTEN": 3, "LOST": 1}
    assert scheduler.run(input=6, accepted=3, bridge_duplicates=2) == found
    assert scheduler.runs.acknowledge() is not None

    # Cleared hops are forgotten.
    world.bridge("a", 1)
    world.tell("a", 0, 20_000, 20_000, 10, of="BRIDGE.")
    world.accept(world.bridge("a", 1))
    world.commit()
    assert scheduler.run(input=2, accepted=1, bridge_duplicates=1) == {"OVERRUN": 1}
