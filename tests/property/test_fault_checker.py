"""The fault tests' checker on random runs of the real path: silent on correct ones, with bridges and transactions, loud on one planted fault."""

import functools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.harness.checker.check import Anomaly, Finding, check
from tests.harness.history import History, Outcome, Place, Record, Send
from tests.property import examples
from tests.support.bridges.lane_runs import SIZES, BridgedRun

RUNS: Final = examples(600)
_ALLOWED: Final = {Anomaly.CROSS_LANE, Anomaly.OVERRUN}
"""Anomalies that producers and small rings cause."""


@functools.cache
def _history(seed: int) -> History:
    run = BridgedRun("orders", seed)
    run.run()
    return run.history


def _findings(history: History) -> list[Finding]:
    return [finding for finding in check(history) if finding.anomaly not in _ALLOWED]


def test_silent_on_correct_runs() -> None:
    """The checker is silent on correct runs, for any traffic over any route, for any turns of lanes, and in any order of records."""
    fates: set[str] = set()
    for seed in range(RUNS):
        history = _history(seed)
        assert list(map(str, _findings(history))) == [], seed
        dice = random.Random(seed)
        names = ("inputs", "accepted", "diverted", "quarantined")
        shuffled: dict[str, Any] = {
            name: dice.sample(getattr(history, name), len(getattr(history, name))) for name in names
        }
        fates |= {name for name, records in shuffled.items() if records}

        assert sorted(map(str, check(replace(history, **shuffled)))) == sorted(map(str, check(history)))

    assert fates == {"inputs", "accepted", "diverted", "quarantined"}


# -- one planted fault ---------------------------------------------------------------------------------------------

Planted = tuple[History, Place | None]
"""A history with a fault, and the place at which it is to be found."""


def _plain(history: History) -> list[Record]:
    """Accepted messages, but no parts of transactions."""
    return [item for item in history.accepted if item.header("_RF_TX_PART") is None]


def _with(history: History, old: Record | None, new: Record | None) -> History:
    accepted = [item for item in history.accepted if item is not old]
    return replace(history, accepted=accepted if new is None else [*accepted, new])


def _end(history: History) -> int:
    return max((item.offset for item in history.accepted), default=-1) + 1


def _without(
    record: Record, name: str, *more: tuple[str, bytes | None]
) -> tuple[tuple[str, bytes | None], ...]:
    return (*(header for header in record.headers if header[0] != name), *more)


def lose(history: History, dice: random.Random) -> Planted:
    victim = dice.choice(_plain(history))
    return _with(history, victim, None), victim.source


def lose_diverted(history: History, dice: random.Random) -> Planted:
    victim = dice.choice(history.diverted)
    return replace(history, diverted=[item for item in history.diverted if item is not victim]), victim.source


def tear(history: History, dice: random.Random) -> Planted:
    several = [item for item in history.accepted if (item.header("_RF_TX_PART") or b"/1")[-2:] != b"/1"]
    victim = dice.choice(several)
    return _with(history, victim, None), victim.source


def double(history: History, dice: random.Random) -> Planted:
    victim = dice.choice(history.accepted)
    copy = victim._replace(offset=_end(history), partition=dice.randrange(2))
    return _with(history, None, copy), victim.source


def swap(history: History, dice: random.Random) -> Planted:
    lines: dict[object, list[Record]] = {}
    for item in _plain(history):
        if item.key is not None and item.source is not None:
            lines.setdefault((item.key, item.source.partition, item.partition), []).append(item)
    one, other = dice.sample(dice.choice([line for line in lines.values() if len(line) > 1]), 2)
    swapped = _with(history, one, one._replace(offset=other.offset))
    return _with(swapped, other, other._replace(offset=one.offset)), None


def scatter(history: History, dice: random.Random) -> Planted:
    several = Counter(item.key for item in history.accepted)
    victim = dice.choice([item for item in history.accepted if item.key and several[item.key] > 1])
    return _with(history, victim, victim._replace(partition=3, offset=0)), None


def corrupt(history: History, dice: random.Random) -> Planted:
    victim = dice.choice(_plain(history))
    bad = dice.choice(
        [
            victim._replace(value=(victim.value or b"") + b"!"),
            victim._replace(key=b"another"),
            victim._replace(timestamp=victim.timestamp + 1),
            victim._replace(headers=victim.headers[1:]),
            victim._replace(headers=(*victim.headers, ("x", b"1"))),
        ]
    )
    return _with(history, victim, bad), victim.source


def invent(history: History, dice: random.Random) -> Planted:
    source = dice.choice([b"orders/0/999", b"orders/7/0", b"payments/0/0", b"orders"])
    made_up = Record("orders.accepted", 0, _end(history), b"g0", b"v", (("_RF_SOURCE", source),), 0)
    return _with(history, None, made_up), made_up.place


def forget(history: History, dice: random.Random) -> Planted:
    """Accept a message whose ID the ring holds, which forgets nothing."""
    known = [
        item for item in history.diverted if item.header("_RF_ORIGINAL") and history.capacity == SIZES[-1]
    ]
    plain = [item for item in known if item.header("_RF_TX") is None]
    victim = dice.choice([item for item in plain if item.header("_RF_BRIDGE_DUPL_ID") is None])
    headers = _without(victim, "_RF_ORIGINAL")
    output = victim._replace(topic="orders.accepted", partition=0, offset=_end(history), headers=headers)
    diverted = [item for item in history.diverted if item is not victim]
    return _with(replace(history, diverted=diverted), None, output), victim.source


def reject(history: History, dice: random.Random) -> Planted:
    """Call a message without an ID a duplicate."""
    plain = [item for item in _plain(history) if not item.header("_AMQ_DUPL_ID")]
    victim = dice.choice([item for item in plain if not item.header("_RF_HOPS")])
    headers = (*victim.headers, ("_RF_ORIGINAL", b"orders/0/0"))
    diverted = victim._replace(topic="orders.duplicates", offset=10**6, headers=headers)
    return replace(_with(history, victim, None), diverted=[*history.diverted, diverted]), victim.source


def forget_send(history: History, dice: random.Random) -> Planted:
    """Have an input that nobody sent, or whose send failed for certain."""
    victim = dice.choice(history.inputs)
    failed = Send(victim.token or b"", None, None, Outcome.FAIL)
    others = [
        Send(item.token or b"", None, None, Outcome.OK)
        for item in history.inputs
        if item.token != victim.token
    ]
    return replace(history, sends=dice.choice([others, [*others, failed]])), victim.place


def lose_send(history: History, _: random.Random) -> Planted:
    tokens = [*(item.token or b"" for item in history.inputs), b"unseen"]
    return replace(history, sends=[Send(token, None, None, Outcome.OK) for token in tokens]), None


FAULTS: Final[dict[Callable[[History, random.Random], Planted], Anomaly]] = {
    lose: Anomaly.LOST, lose_diverted: Anomaly.LOST, tear: Anomaly.TORN, double: Anomaly.DOUBLED, swap: Anomaly.REORDERED,
    scatter: Anomaly.REORDERED, corrupt: Anomaly.CORRUPTED, invent: Anomaly.PHANTOM, forget: Anomaly.FORGOTTEN,
    reject: Anomaly.WRONG_VERDICT, forget_send: Anomaly.PHANTOM, lose_send: Anomaly.LOST,
}  # fmt: skip


ALONE: Final = {lose_diverted, double, corrupt, invent, lose_send}
"""Faults beside which nothing else is to be reported."""


@pytest.mark.parametrize("fault", FAULTS)
def test_loud_on_one_fault(fault: Callable[[History, random.Random], Planted]) -> None:
    """The checker finds one fault, planted anywhere in a correct run, by its name and at its place."""
    planted = 0
    for seed in range(RUNS):
        history = _history(seed)
        if not history.divert or not history.capacity:
            continue
        try:
            faulty, place = fault(history, random.Random(seed))
        except IndexError:  # nothing there to choose from
            continue
        findings = _findings(faulty)
        named = [finding for finding in findings if finding.anomaly is FAULTS[fault]]
        first = None if fault is forget else 1  # of two acceptances, either is named first
        planted += 1

        assert named, seed
        assert place is None or place in {item for finding in named for item in finding.places[:first]}, seed
        assert fault not in ALONE or findings == named[:1], seed
    assert planted > 10
