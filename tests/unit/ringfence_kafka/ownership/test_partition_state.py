"""Steps of a partition after scripted events."""

import pytest

from ringfence_kafka.ownership.partition_state import Action, PartitionState

FIRST, SECOND = object(), object()


def _steps(tenure: PartitionState[object], *events: tuple[str, object]) -> list[Action]:
    steps = []
    for name, assignment in events:
        getattr(tenure, name)(*[assignment] if assignment is not None else [])
        steps.append(tenure.step(0))
    return steps


def test_from_the_first_assignment_to_the_end() -> None:
    tenure: PartitionState[object] = PartitionState()
    assert tenure.step(0) is Action.STAND
    events = [
        ("assigned", FIRST), ("confirmed", FIRST), ("revoked", None), ("assigned", SECOND), ("confirmed", SECOND),
        ("ended", None), ("drained", None), ("given_up", None),
    ]  # fmt: skip

    assert _steps(tenure, *events) == [
        Action.OPEN, Action.WORK, Action.STAND, Action.REGAIN, Action.WORK, Action.DRAIN, Action.CLOSE, Action.END,
    ]  # fmt: skip


def test_right_that_went_while_it_was_asked_for() -> None:
    """A confirmation under a former assignment is repeated under the present one."""
    events = [("assigned", FIRST), ("revoked", None), ("confirmed", FIRST), ("assigned", SECOND)]

    assert _steps(PartitionState(), *events)[2:] == [Action.STAND, Action.REGAIN]


def test_failure_rests_then_opens_anew() -> None:
    """A failed partition is dropped, and opened again after a rest; a new assignment is tried at once."""
    tenure = _held()
    tenure.failed(until=5)
    assert tenure.step(0) is Action.DROP
    tenure.broke(until=5)

    assert tenure.step(0) is Action.DROP
    tenure.given_up()
    assert (tenure.step(4.9), tenure.step(5), tenure.attempts) == (Action.REST, Action.OPEN, 2)
    tenure.failed(until=9)
    tenure.assigned(SECOND)
    assert (tenure.step(6), tenure.attempts) == (Action.OPEN, 0)
    tenure.confirmed(SECOND)
    tenure.failed(until=9, keeps=True)
    tenure.succeeded()
    assert (tenure.step(9), tenure.attempts) == (Action.WORK, 0)


def _held() -> PartitionState[object]:
    tenure: PartitionState[object] = PartitionState()
    tenure.assigned(FIRST)
    tenure.confirmed(FIRST)
    return tenure


@pytest.mark.parametrize("again", [False, True], ids=["it went away", "and another rebalance began"])
def test_comes_back_while_it_is_drained(again: bool) -> None:
    tenure = _held()
    tenure.revoked()
    tenure.ended()
    if again:
        tenure.revoked()

    assert (tenure.step(0), tenure.right, tenure.latest) == (Action.DRAIN, None, FIRST)
    tenure.assigned(SECOND)
    assert (tenure.step(0), tenure.latest) == (Action.REGAIN, SECOND)


def test_comes_back_too_late() -> None:
    """A partition assigned again after its drain is closed, and opened from the start."""
    tenure = _held()
    tenure.ended()
    assert tenure.right is None
    tenure.drained()
    tenure.assigned(SECOND)

    assert tenure.step(0) is Action.CLOSE
    tenure.given_up()
    assert tenure.step(0) is Action.OPEN


@pytest.mark.parametrize("when", ["assigned", "revoked", "assigned again", "ended"])
def test_broken_never_goes_on(when: str) -> None:
    """A broken partition is drained and closed, whatever the group decides, and opened again if it is still assigned."""
    tenure = _held()
    if when != "assigned":
        tenure.revoked()
    if when == "assigned again":
        tenure.assigned(SECOND)
    if when == "ended":
        tenure.ended()
    tenure.broke(until=5)

    assert tenure.step(0) is Action.DRAIN
    events = [("assigned", SECOND), ("drained", None), ("given_up", None)]  # what rests is tried at once
    assert _steps(tenure, *events) == [Action.DRAIN, Action.CLOSE, Action.OPEN]


@pytest.mark.parametrize("when", ["at work", "in a rebalance", "drained", "broken"])
def test_lost_is_dropped(when: str) -> None:
    """A lost partition is dropped at once in any state, and opened after a rest if it is still assigned."""
    tenure = _held()
    if when == "in a rebalance":
        tenure.revoked()
    if when == "drained":
        tenure.ended()
    if when == "broken":
        tenure.broke(until=1)
    tenure.failed(until=5)
    steps = [tenure.step(0)]
    tenure.given_up()
    steps += [tenure.step(0), tenure.step(5)]

    assert steps[0] is Action.DROP
    assert steps[1:] == {
        "in a rebalance": [Action.STAND, Action.STAND],
        "drained": [Action.END, Action.END],
    }.get(when, [Action.REST, Action.OPEN])
