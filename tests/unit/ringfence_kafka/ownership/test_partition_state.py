from typing import Final

import pytest

from ringfence_kafka.ownership.partition_state import Action, PartitionState

HELD: Final = "assigned open confirmed work "
BROKEN: Final = "broke drain assigned drain drained close given_up open"  # what rests is tried at once
LOST: Final = "failed drop given_up rest waited open"
STORIES: Final = {
    "from the first assignment to the end": (
        f"{HELD} revoked stand assigned regain confirmed work ended drain drained close given_up end"
    ),
    "a former assignment was confirmed": "assigned open revoked stand confirmed stand assigned regain",
    "comes back while it is drained": f"{HELD} revoked stand ended drain assigned regain",
    "comes back after another rebalance": f"{HELD} revoked stand ended drain revoked drain assigned regain",
    "comes back too late": f"{HELD} ended drain drained close assigned close given_up open",
    "broken at work": f"{HELD} {BROKEN}",
    "broken in a rebalance": f"{HELD} revoked stand {BROKEN}",
    "broken when it comes back": f"{HELD} revoked stand assigned regain {BROKEN}",
    "broken when it has ended": f"{HELD} revoked stand ended drain {BROKEN}",
    "lost at work": f"{HELD} {LOST}",
    "lost when it is broken": f"{HELD} broke drain {LOST}",
    "lost in a rebalance": f"{HELD} revoked stand failed drop given_up stand waited stand",
    "lost when it has ended": f"{HELD} ended drain failed drop given_up end waited end",
}
"""Events, each with the step that is due after it. A failure lets the partition rest until somebody ``waited``."""


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_steps(story: str) -> None:
    """A partition resumes after a rebalance. A broken one is drained first and a lost one dropped, whatever the group decides."""
    state: PartitionState[object] = PartitionState()
    assert state.step(0) is Action.STAND
    words, assignment, now = story.split(), object(), 0.0
    for event, step in zip(words[::2], words[1::2], strict=True):
        assignment = object() if event == "assigned" else assignment
        now = 5.0 if event == "waited" else now
        if event in {"assigned", "confirmed"}:
            getattr(state, event)(assignment)
        elif event in {"broke", "failed"}:
            getattr(state, event)(until=5.0)
        elif event != "waited":
            getattr(state, event)()

        assert state.step(now) is Action[step.upper()], event


def test_failure_rests_then_opens_anew() -> None:
    """A failed partition is dropped, and opened again after a rest; a new assignment is tried at once."""
    first, second = object(), object()
    state: PartitionState[object] = PartitionState()
    state.assigned(first)
    state.confirmed(first)
    state.ended()
    assert (state.right, state.latest) == (None, first)
    state.assigned(second)
    assert (state.right, state.latest) == (second, second)
    state.failed(until=5)
    state.broke(until=5)

    assert state.step(0) is Action.DROP
    state.given_up()
    assert (state.step(4.9), state.step(5), state.attempts) == (Action.REST, Action.OPEN, 2)
    state.failed(until=9)
    state.assigned(second)
    assert (state.step(6), state.attempts) == (Action.OPEN, 0)
    state.confirmed(second)
    state.failed(until=9, keeps=True)
    state.succeeded()
    assert (state.step(9), state.attempts) == (Action.WORK, 0)
