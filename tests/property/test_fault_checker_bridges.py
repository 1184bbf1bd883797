"""The fault tests' checker on runs with bridges, as the real path makes them: silent on each, loud on one planted fault.

A lane's knowledge of hops and the checker's expectation agree, although they share no code.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from tests.harness.checker.check import Anomaly, check
from tests.harness.history import History, Record
from tests.property import examples
from tests.support.bridges.lane_runs import BridgedRun

RUNS: Final = examples(600)
_ALLOWED: Final = {Anomaly.CROSS_LANE, Anomaly.OVERRUN}
"""Anomalies that producers and small rings cause."""


def test_silent_on_correct_runs() -> None:
    """The checker is silent on correct runs, for any traffic over any route, and for any turns of lanes."""
    fates: set[str] = set()
    for seed in range(RUNS):
        run = BridgedRun("orders", seed)
        run.run()
        findings = [str(finding) for finding in check(run.history) if finding.anomaly not in _ALLOWED]
        assert findings == [], seed
        for name in ("accepted", "diverted", "quarantined"):
            fates |= {name} if getattr(run.history, name) else set()

    assert fates == {"accepted", "diverted", "quarantined"}


def _bridged(record: Record) -> bool:
    return record.header("_RF_BRIDGE_DUPL_ID") is not None


def lose(history: History, dice: random.Random) -> tuple[History, Record] | None:
    """Remove a hop that came once, and that nothing had confirmed before."""
    hops = [input_.header("_RF_BRIDGE_DUPL_ID") for input_ in history.inputs]
    alone = [
        input_
        for input_ in history.inputs
        if _bridged(input_)
        and hops.count(input_.header("_RF_BRIDGE_DUPL_ID")) == 1
        and not _known(history, input_)
    ]
    victim = _pick(
        dice, [item for item in alone if any(one.source == item.place for one in history.accepted)]
    )
    if victim is None or victim.header("_AMQ_DUPL_ID") is not None or victim.header("_RF_TX") is not None:
        return None
    left = [item for item in history.accepted if item.source != victim.place]
    return replace(history, accepted=left), victim


def _known(history: History, record: Record) -> bool:
    """Whether any record of its source confirms it."""
    source, _, offset = (record.header("_RF_BRIDGE_DUPL_ID") or b"").rpartition(b"/")
    return any(
        (input_.header("_RF_BRIDGE_DUPL_ID") or b"").startswith(source + b"/")
        and int(input_.header("_RF_BRIDGE_CONFIRMED") or 0) > int(offset)
        for input_ in history.inputs
    )


def forget(history: History, dice: random.Random) -> tuple[History, Record] | None:
    """Accept a record that was dropped for its hop."""
    if history.capacity < 1_000 or history.divert:
        return None
    seen: set[tuple[bytes | None, int]] = set()
    again = []
    for input_ in sorted(history.inputs, key=lambda one: (one.partition, one.offset)):
        way = input_.header("_RF_BRIDGE_DUPL_ID"), input_.partition
        if way in seen and input_.header("_RF_TX") is None and not _came(history, input_):
            again.append(input_)
        seen.add(way)
    checked = [
        item for item in again if item.header("_AMQ_DUPL_ID") and item.header("_RF_BRIDGE_IDS") is None
    ]
    victim = _pick(dice, [item for item in again if _bridged(item) and item not in checked])
    if victim is None:
        return None
    return replace(history, accepted=[*history.accepted, _accepted(history, victim)]), victim


def _came(history: History, record: Record) -> bool:
    return any(item.source == record.place for item in (*history.accepted, *history.quarantined))


def _accepted(history: History, record: Record) -> Record:
    """Return the record as a lane would have written it, behind all others."""
    kept = tuple(header for header in record.headers if not header[0].startswith("_RF_BRIDGE_"))
    headers = (*kept, ("_RF_SOURCE", str(record.place).encode()))
    places = {item.key: item.partition for item in history.accepted}
    return record._replace(
        topic=f"{history.input_topic}.accepted",
        partition=places.get(record.key, 0),
        offset=10_000,
        headers=headers,
    )


def leave(history: History, dice: random.Random) -> tuple[History, Record] | None:
    """Add a header of a bridge to an accepted record, or forge or lose a header of its cluster connections."""
    victim = _pick(dice, history.accepted)
    if victim is None:
        return None
    there = victim.header("_RF_HOPS") is not None
    other = tuple(header for header in victim.headers if header[0] != "_RF_HOPS")
    headers = dice.choice(
        [
            (*victim.headers, ("_RF_BRIDGE_CONFIRMED", b"1")),
            other if there else (*other, ("_RF_HOPS", b"forged")),
            (*victim.headers, ("_RF_HOPS", b"forged")),
        ]
    )
    accepted = [victim._replace(headers=headers) if item is victim else item for item in history.accepted]
    found = next(input_ for input_ in history.inputs if input_.place == victim.source)
    return replace(history, accepted=accepted), found


def _pick(dice: random.Random, records: list[Record]) -> Record | None:
    return dice.choice(records) if records else None


Fault = Callable[[History, random.Random], tuple[History, Record] | None]


@pytest.mark.parametrize(
    ("fault", "anomaly"),
    [(lose, Anomaly.LOST), (forget, Anomaly.FORGOTTEN), (leave, Anomaly.CORRUPTED)],
)
def test_loud_on_one_fault(fault: Fault, anomaly: Anomaly) -> None:
    """The checker names the one fault planted in such a run, at its place; one that comes so late is out of order, too."""
    planted = 0
    for seed in range(RUNS):
        run = BridgedRun("orders", seed)
        run.run()
        made = fault(run.history, random.Random(seed))
        if made is None:
            continue
        planted += 1
        history, victim = made
        late = {Anomaly.REORDERED} if fault is forget else set()
        found = [finding for finding in check(history) if finding.anomaly not in _ALLOWED | late]
        assert [(finding.anomaly, finding.places[0]) for finding in found] == [(anomaly, victim.place)], seed

    assert planted > RUNS / 20
