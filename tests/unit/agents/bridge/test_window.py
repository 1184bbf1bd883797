"""In-flight and confirmed offsets: confirmed by acknowledgements alone, in order."""

from collections import Counter

import pytest

from agents.bridge.window import Cycle, Window, in_turn
from ringfence_kafka.errors import InvariantError


def _window(limit: int = 10, cycles_max: int = 2) -> Window:
    window = Window(limit, cycles_max)
    window.open(0, "T", 100)
    return window


def _begin(window: Window, end: int, pending: int = 1) -> Cycle:
    cycle = window.start_cycle({0: end})
    cycle.pending = pending
    return cycle


def test_confirmed_by_acknowledgement_alone() -> None:
    """A record that was merely read or handed over is not confirmed."""
    window = _window()
    cycle = _begin(window, 105)
    window.confirm()

    assert (window.places[0].next, window.places[0].confirmed) == (105, 100)
    cycle.pending = 0
    assert window.confirm() == [cycle]
    assert window.places[0].confirmed == 105


def test_confirmed_in_order() -> None:
    """A later cycle that is acknowledged first waits for the one before it."""
    window = _window()
    first, second = _begin(window, 103), _begin(window, 106)
    second.pending = 0

    assert window.confirm() == []
    assert window.places[0].confirmed == 100
    first.pending = 0
    assert window.confirm() == [first, second]
    assert window.places[0].confirmed == 106


def test_no_more_than_the_limit() -> None:
    """A partition takes part only while all that a cycle may bring fits into its window."""
    window = _window(limit=10)
    window.open(1, "T", 0)

    assert window.take == 5
    _begin(window, 105)
    assert window.wanted() == {0: 105, 1: 0}
    _begin(window, 106)
    assert window.wanted() == {1: 0}


def test_failure() -> None:
    """A failure reads all unconfirmed messages again, and counts them. Reading backwards without one is a defect of Ringfence."""
    window = _window()
    first, second = _begin(window, 103), _begin(window, 107)
    place = window.places[0]
    first.pending, first.records, second.records = 0, {place: 3}, {place: 4}
    window.confirm()

    assert window.reset() == {place: 4}
    assert (place.next, place.confirmed, window.busy) == (103, 103, False)
    with pytest.raises(InvariantError):
        window.start_cycle({0: 102})


def test_given_away() -> None:
    """An acknowledgement for a former opening confirms nothing in the next."""
    window = _window()
    cycle = _begin(window, 108)
    window.close([0])
    window.open(0, "U", 0)
    cycle.pending = 0
    window.confirm()

    assert window.places[0].confirmed == 0


def test_in_turn() -> None:
    """Partitions that take turns get equal shares, including those that join later."""
    served: Counter[int] = Counter()
    last = -1
    for _ in range(10):
        for number in in_turn(range(5), last)[:2]:
            served[number] += 1
            last = number
    assert served == dict.fromkeys(range(5), 4)
    assert in_turn({0, 3, 7}, 3) == [7, 0, 3]
    assert in_turn({0, 3}, 7) == [0, 3]
