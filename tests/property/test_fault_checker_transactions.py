"""The fault tests' checker on runs with transactions, as the real path makes them: loud on one planted fault."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.harness.checker.check import Anomaly, check
from tests.harness.history import Record
from tests.property import examples
from tests.property.test_transactions_model import COUNTS, Planned, World, messages

Fault = Callable[[list[Record], Record, random.Random], list[Record]]


def _tear(accepted: list[Record], victim: Record, dice: random.Random) -> list[Record]:
    """Remove one part; another one stays."""
    count = int((victim.header("_RF_TX_PART") or b"").partition(b"/")[2])
    assume(count > 1)
    return [item for item in accepted if item is not victim]


def _double(accepted: list[Record], victim: Record, dice: random.Random) -> list[Record]:
    """Add one part again, behind all."""
    return [*accepted, victim._replace(offset=max(item.offset for item in accepted) + 1)]


def _swap(accepted: list[Record], victim: Record, dice: random.Random) -> list[Record]:
    """Swap two parts of one transaction and one group."""
    same = [
        item
        for item in accepted
        if item is not victim
        and (item.source, item.topic, item.key) == (victim.source, victim.topic, victim.key)
        and item.key is not None
    ]
    assume(same)
    other = dice.choice(same)
    rest = [item for item in accepted if item not in (victim, other)]
    return [*rest, victim._replace(offset=other.offset), other._replace(offset=victim.offset)]


def _corrupt(accepted: list[Record], victim: Record, dice: random.Random) -> list[Record]:
    """Change one property of a part."""
    bad = dice.choice(
        [
            victim._replace(value=b"another"),
            victim._replace(key=b"another"),
            victim._replace(timestamp=1),
            victim._replace(headers=(("x", b"1"), *victim.headers)),
            victim._replace(headers=(*victim.headers, ("_RF_TX", b"json/1"))),
        ]
    )
    return [bad if item is victim else item for item in accepted]


def _misplace(accepted: list[Record], victim: Record, dice: random.Random) -> list[Record]:
    """Accept a part in another address."""
    topic = dice.choice([count for count in COUNTS if count != victim.topic])
    return [victim._replace(topic=topic, offset=999) if item is victim else item for item in accepted]


@pytest.mark.parametrize(
    ("fault", "anomaly"),
    [
        (_tear, Anomaly.TORN),
        (_double, Anomaly.DOUBLED),
        (_swap, Anomaly.REORDERED),
        (_corrupt, Anomaly.CORRUPTED),
        (_misplace, Anomaly.PHANTOM),
    ],
)
@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(plan=st.lists(messages, max_size=40), dice=st.randoms(use_true_random=False))
def test_checker_is_loud_on_one_fault(
    plan: list[Planned], dice: random.Random, fault: Fault, anomaly: Anomaly
) -> None:
    """The checker names one fault, planted anywhere in such a run, at its place."""
    world = World(plan, 1_000, dice)
    world.run()
    accepted = world.history.accepted
    parts_accepted = [item for item in accepted if item.header("_RF_TX_PART") is not None]
    assume(parts_accepted)
    victim = dice.choice(parts_accepted)

    findings = check(replace(world.history, accepted=fault(accepted, victim, dice)))
    named = [finding for finding in findings if finding.anomaly is anomaly]
    assert named
    place = victim.source if anomaly is not Anomaly.PHANTOM else None
    assert place is None or place in {finding.places[0] for finding in named}
