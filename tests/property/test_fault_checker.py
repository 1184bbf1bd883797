"""The fault tests' checker against a model of a correct Ringfence: silent on what it does, loud on one planted fault."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.harness.checker.check import Anomaly, check, counts
from tests.harness.history import History, Outcome, Place, Record, Send
from tests.harness.ringfence_model import TOPIC, Model, Plan, plans
from tests.property import examples

rolls = st.randoms(use_true_random=False)
thorough = settings(max_examples=examples(400))


@thorough
@given(plan=plans(), dice=rolls)
def test_silent_on_a_correct_run(plan: Plan, dice: random.Random) -> None:
    """The checker reports resends past the ring or to another lane as such, and nothing else."""
    model = Model(plan, dice)

    assert counts(check(model.history)) == model.due()


@thorough
@given(plan=plans(), dice=rolls)
def test_in_any_order(plan: Plan, dice: random.Random) -> None:
    """The order in which records were read makes no difference."""
    history = Model(plan, dice).history
    before = sorted(map(str, check(history)))
    for records in (history.inputs, history.accepted, history.diverted, history.quarantined, history.sends):
        dice.shuffle(records)

    assert sorted(map(str, check(history))) == before


@thorough
@given(plan=plans(capacity=99), dice=rolls)
def test_forgetting_is_found(plan: Plan, dice: random.Random) -> None:
    """The checker finds a ring that holds all IDs and yet forgets one, whatever was forwarded in between."""
    model = Model(plan, dice, forgetful=True)
    assume(model.forgotten is not None)

    forgotten = [finding for finding in check(model.history) if finding.anomaly is Anomaly.FORGOTTEN]
    assert len(forgotten) == 1
    assert model.forgotten is not None
    assert model.forgotten.place in forgotten[0].places


@thorough
@given(plan=plans(), dice=rolls, kept=st.lists(st.integers(0, 30), min_size=3, max_size=3))
def test_a_gap_is_all_that_is_unknown(plan: Plan, dice: random.Random, kept: list[int]) -> None:
    """A run with input deleted by retention is not called clean, and the remaining input is judged as before."""
    model = Model(plan, dice)
    starts = dict(enumerate(kept[: plan.partitions]))
    inputs = [input_ for input_ in model.history.inputs if input_.offset >= starts[input_.partition]]

    found = counts(check(replace(model.history, inputs=inputs, log_starts=starts)))
    assert found == model.due() | {"GAP": sum(start > 0 for start in starts.values())}


# -- one planted fault ---------------------------------------------------------------------------------------------


class Planted(NamedTuple):
    """A history with a fault, and the finding that is due for it."""

    history: History
    anomaly: Anomaly
    place: Place | None
    alone: bool = True
    """Nothing else is to be reported."""


def _pick(dice: random.Random, records: list[Record]) -> Record:
    assume(records)
    return dice.choice(records)


def _with(history: History, old: Record | None, new: Record | None) -> History:
    """Return the history with an accepted record removed, added or replaced."""
    accepted = [item for item in history.accepted if item is not old]
    return replace(history, accepted=accepted if new is None else [*accepted, new])


def _after(history: History) -> int:
    return max((item.offset for item in history.accepted), default=-1) + 1


def lose(model: Model, dice: random.Random) -> Planted:
    """Remove an accepted record, so that its resends are not duplicates either."""
    history = model.history
    due = [item for item in history.accepted if model.once(model.origins[item.place])]
    victim = _pick(dice, due)
    return Planted(_with(history, victim, None), Anomaly.LOST, model.origins[victim.place].place, alone=False)


def lose_diverted(model: Model, dice: random.Random) -> Planted:
    """Remove a duplicate from its topic."""
    victim = _pick(dice, model.history.diverted)
    left = [item for item in model.history.diverted if item is not victim]
    return Planted(replace(model.history, diverted=left), Anomaly.LOST, model.origins[victim.place].place)


def double(model: Model, dice: random.Random) -> Planted:
    """Add an accepted record again, anywhere behind."""
    victim = _pick(dice, model.history.accepted)
    copy = victim._replace(
        offset=_after(model.history), partition=dice.randrange(model.plan.accepted_partitions)
    )
    return Planted(_with(model.history, None, copy), Anomaly.DOUBLED, model.origins[victim.place].place)


def swap(model: Model, dice: random.Random) -> Planted:
    """Swap two records of one group and one input partition."""
    one = _pick(dice, [item for item in model.history.accepted if item.key is not None])
    partition = model.origins[one.place].partition
    others = [
        item
        for item in model.history.accepted
        if item is not one and item.key == one.key and model.origins[item.place].partition == partition
    ]
    other = _pick(dice, others)
    swapped = _with(model.history, one, one._replace(offset=other.offset))
    swapped = _with(swapped, other, other._replace(offset=one.offset))
    return Planted(swapped, Anomaly.REORDERED, None, alone=False)


def scatter(model: Model, dice: random.Random) -> Planted:
    """Move a record of a group to another partition of the output."""
    several = Counter(item.key for item in model.history.accepted)
    victim = _pick(
        dice, [item for item in model.history.accepted if item.key is not None and several[item.key] > 1]
    )
    moved = victim._replace(partition=3, offset=0)
    return Planted(_with(model.history, victim, moved), Anomaly.REORDERED, None, alone=False)


def corrupt(model: Model, dice: random.Random) -> Planted:
    """Change one property of an accepted record."""
    victim = _pick(dice, model.history.accepted)
    bad = dice.choice(
        [
            victim._replace(value=(victim.value or b"") + b"!"),
            victim._replace(key=b"another"),
            victim._replace(timestamp=victim.timestamp + 1),
            victim._replace(headers=victim.headers[1:]),
            victim._replace(headers=(*victim.headers, ("x", b"1"))),
        ]
    )
    return Planted(_with(model.history, victim, bad), Anomaly.CORRUPTED, model.origins[victim.place].place)


def invent(model: Model, dice: random.Random) -> Planted:
    """Add an accepted record that names a missing input."""
    source = dice.choice([f"{TOPIC}/0/999", f"{TOPIC}/7/0", "payments/0/0", TOPIC]).encode()
    made_up = Record(f"{TOPIC}.accepted", 0, _after(model.history), b"g0", b"v", (("_RF_SOURCE", source),), 0)
    return Planted(_with(model.history, None, made_up), Anomaly.PHANTOM, made_up.place)


def forget_send(model: Model, dice: random.Random) -> Planted:
    """Add an input that nobody sent, or whose send failed for certain."""
    victim = _pick(dice, model.history.inputs)
    others = [send for send in model.history.sends if send.token != victim.token]
    assume(others)
    failed = Send(victim.token or b"", None, None, Outcome.FAIL)
    sends = dice.choice([others, [*others, failed]])
    return Planted(replace(model.history, sends=sends), Anomaly.PHANTOM, victim.place)


def lose_send(model: Model, dice: random.Random) -> Planted:
    """Add an acknowledged send that never reached the input."""
    sends = [*model.history.sends, Send(b"unseen", None, None, Outcome.OK)]
    return Planted(replace(model.history, sends=sends), Anomaly.LOST, None)


def reject(model: Model, dice: random.Random) -> Planted:
    """Accept the duplicate in place of its original, which came before it in the same partition."""
    pairs = [
        (duplicate, original)
        for duplicate, original in model.duplicates
        if duplicate.partition == original.partition
        and duplicate.offset > original.offset
        and model.once(original)
    ]
    assume(pairs)
    duplicate, original = dice.choice(pairs)
    output = next(item for item in model.history.accepted if model.origins[item.place] is original)
    source = ("_RF_SOURCE", str(duplicate.place).encode())
    headers = [header for header in duplicate.headers if header[0] != "_RF_SOURCE"]
    headers += [
        source if header[0] == "_RF_SOURCE" else header
        for header in output.headers
        if header[0].startswith("_RF_")
    ]
    swapped = duplicate._replace(
        topic=output.topic, partition=output.partition, offset=output.offset, key=output.key,
        headers=tuple(headers),
    )  # fmt: skip
    history = _with(model.history, output, swapped)
    if model.plan.divert:
        own = next(item for item in history.diverted if model.origins[item.place] is duplicate)
        headers = [header for header in original.headers if header[0] != "_RF_SOURCE"]
        headers += [("_RF_SOURCE", str(original.place).encode()), ("_RF_ORIGINAL", source[1])]
        other = original._replace(
            topic=own.topic, partition=own.partition, offset=own.offset, headers=tuple(headers)
        )
        history = replace(history, diverted=[other if item is own else item for item in history.diverted])
    return Planted(history, Anomaly.WRONG_VERDICT, original.place, alone=False)


FAULTS: Final[list[Callable[[Model, random.Random], Planted]]] = [
    lose, lose_diverted, double, swap, scatter, corrupt, invent, forget_send, lose_send, reject,
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.filter_too_much])
@given(plan=plans(), dice=rolls)
def test_loud_on_one_fault(
    plan: Plan, dice: random.Random, fault: Callable[[Model, random.Random], Planted]
) -> None:
    """The checker finds one fault, planted anywhere in a correct run, by its name and at its place."""
    model = Model(plan, dice)
    assume(model.history.sends)
    planted = fault(model, dice)

    findings = check(planted.history)
    named = [finding for finding in findings if finding.anomaly is planted.anomaly]
    assert named
    assert planted.place is None or planted.place in {
        finding.places[0] for finding in named if finding.places
    }
    if planted.alone:
        due = model.due()
        assert counts(findings) == due | {planted.anomaly.value: due[planted.anomaly.value] + 1}
