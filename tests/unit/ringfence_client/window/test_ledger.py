import gc
import math
import random
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, ClassVar

import pytest

from ringfence_client.window import ledger as module
from ringfence_client.window.ledger import GroupInfo, GroupLedger

A, B, C = b"A", b"B", b"C"


def _ledger(text: str, prefetch: int = 1) -> GroupLedger[int]:
    """One message a letter, which is its group, at positions 0, 1, ...; a dot is ungrouped."""
    ledger: GroupLedger[int] = GroupLedger(prefetch)
    for position, group in enumerate(text):
        ledger.append(position, None if group == "." else group.encode(), 1_000 + position)
    return ledger


def _all(ledger: GroupLedger[int], consumer: str) -> list[int]:
    """All that a consumer can get without finishing anything."""
    return list(iter(lambda: ledger.acquire(consumer), None))


# -- what the brokers publish -----------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [1, 5])
def test_shopping_cart(prefetch: int) -> None:
    """Qpid: what was put into the cart is processed before its removal is, however many consumers there are."""
    ledger = _ledger("AA", prefetch)
    put, remove = 0, 1

    assert ledger.acquire("first") == put
    assert ledger.acquire("second") is None
    ledger.acknowledge("first", put)
    assert ledger.acquire("second") == remove


def test_groups_do_not_block_each_other() -> None:
    """Qpid: B's messages stand behind A's, and are available although A's first is in the works."""
    ledger = _ledger("AABB")

    assert ledger.acquire("first") == 0
    assert ledger.acquire("second") == 2
    assert ledger.acquire("third") is None


@pytest.mark.parametrize("prefetch", [1, 2, 3])
def test_prefetch(prefetch: int) -> None:
    """Qpid: the first N messages of a group go to one consumer, and the rest to nobody else meanwhile."""
    ledger = _ledger("AAAAA", prefetch)

    assert _all(ledger, "first") == list(range(prefetch))
    assert ledger.acquire("second") is None


def test_owner_gets_more_of_its_group() -> None:
    """The owner is given the next of its group as soon as its prefetch has room; the others are not."""
    ledger = _ledger("AAAA", prefetch=2)
    assert _all(ledger, "first") == [0, 1]
    ledger.acknowledge("first", 0)

    assert ledger.acquire("second") is None
    assert ledger.acquire("first") == 2
    assert ledger.acquire("first") is None


@pytest.mark.parametrize(
    ("finish", "left"),
    [(GroupLedger.acknowledge, [2]), (GroupLedger.reject, [2]), (GroupLedger.release, [0, 1, 2])],
)
def test_free_when_nothing_is_held(finish: Callable[..., object], left: list[int]) -> None:
    """A group becomes free once all held messages are acknowledged, released or rejected, as in Qpid."""
    ledger = _ledger("AAA", prefetch=2)
    _all(ledger, "first")
    finish(ledger, "first", 1)

    assert ledger.acquire("second") is None
    finish(ledger, "first", 0)
    got = []
    while (position := ledger.acquire("second")) is not None:
        got.append(position)
        ledger.acknowledge("second", position)
    assert got == left


def test_no_inversion() -> None:
    """Qpid warns of it: the first is released, the second acknowledged, and the first processed after the second.

    Here the second goes back with the first, so it cannot be acknowledged.
    """
    ledger = _ledger("AA", prefetch=2)
    assert _all(ledger, "first") == [0, 1]

    assert ledger.release("first", 0) == [0, 1]
    with pytest.raises(KeyError, match="1 is held by no consumer"):
        ledger.acknowledge("first", 1)
    assert _all(ledger, "second") == [0, 1]


def test_discard_keeps_order() -> None:
    """Qpid: who cannot process a message discards it with reject, and holds on to the later ones."""
    ledger = _ledger("AAA", prefetch=2)
    _all(ledger, "first")
    ledger.reject("first", 0)

    assert ledger.holds("first") == [1]
    assert ledger.acquire("first") == 2
    assert ledger.acquire("second") is None


def test_closed_consumer() -> None:
    """JMSXGroupID: when a group's consumer closes, another gets the group, from the first unfinished on."""
    ledger = _ledger("AABBAC")
    assert _all(ledger, "first") == [0, 2, 5]
    ledger.acknowledge("first", 0)
    assert ledger.acquire("first") == 1

    assert ledger.close("first") == [1, 2, 5]
    assert _all(ledger, "second") == [1, 2, 5]
    assert ledger.acquire("first") is None


# -- what is refused ----------------------------------------------------------------------------------------------


def test_duplicate_append() -> None:
    """A position names one message: while it waits or is held, no second one is taken; afterwards it is free again."""
    ledger = _ledger("A.")
    with pytest.raises(ValueError, match=r"0 is in the ledger already, in group b'A'"):
        ledger.append(0, B, 0)
    assert ledger.acquire("first") == 0
    with pytest.raises(ValueError, match="0 is in the ledger already"):
        ledger.append(0, A, 0)
    with pytest.raises(ValueError, match="1 is in the ledger already, in group None"):
        ledger.append(1, None, 0)

    ledger.acknowledge("first", 0)
    ledger.append(0, B, 0)
    assert ledger.groups()[0] == GroupInfo(B, 1, 0, None, 0, 0)
    assert len(ledger) == 2


@pytest.mark.parametrize("act", [GroupLedger.acknowledge, GroupLedger.reject, GroupLedger.release])
def test_acting_on_what_one_does_not_hold(act: Callable[..., object]) -> None:
    """Only the holder can finish or release a message. The error names the holder, and nothing changes."""
    ledger = _ledger("AB")
    ledger.acquire("first")

    for consumer, position, fault in (
        ("second", 0, "0 is held by 'first', not by 'second'"),
        ("first", 1, "1 is held by no consumer: it waits"),
        ("first", 7, "7 is held by no consumer: .*was never here"),
    ):
        with pytest.raises(KeyError, match=fault):
            act(ledger, consumer, position)
    assert (ledger.holds("first"), ledger.holds("second"), len(ledger)) == ([0], [], 2)


def test_waiting_in_ones_own_group() -> None:
    """Owning a group is not to hold all of it."""
    ledger = _ledger("AA")
    ledger.acquire("first")

    with pytest.raises(
        KeyError, match="1 is held by no consumer: it waits, and 'first' has to acquire it first"
    ):
        ledger.acknowledge("first", 1)


def test_no_prefetch() -> None:
    """A prefetch that would hand out nothing is refused."""
    with pytest.raises(ValueError, match="0 lets nobody acquire"):
        GroupLedger(0)


# -- what it costs ------------------------------------------------------------------------------------------------


class _Counted(int):
    """A position that counts comparisons."""

    compared: ClassVar[int] = 0

    def __lt__(self, other: int) -> bool:
        _Counted.compared += 1
        return int(self) < int(other)


class _Effort:
    """Lines of the ledger that are run, and comparisons of positions: the same on any machine."""

    def __init__(self) -> None:
        self.calls = self.lines = 0
        self._compared = _Counted.compared

    @contextmanager
    def of(self, calls: int) -> Iterator[None]:
        """Count what is done here, which is so many calls."""
        self.calls += calls
        before = sys.gettrace()
        sys.settrace(self._frame)
        try:
            yield
        finally:
            sys.settrace(before)

    def _frame(self, frame: FrameType, _event: str, _argument: object) -> Callable[..., Any] | None:
        return self._line if frame.f_code.co_filename == module.__file__ else None

    def _line(self, _frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        self.lines += event == "line"
        return self._line

    @property
    def per_call(self) -> float:
        return (self.lines + _Counted.compared - self._compared) / self.calls


def _life(groups: int) -> float:
    """Return the effort of a call, while two messages of each group come in any order, go from hand to hand, and end."""
    ledger: GroupLedger[_Counted] = GroupLedger(prefetch=2)
    effort, source = _Effort(), random.Random(groups)
    positions = [_Counted(index) for index in range(2 * groups)]
    source.shuffle(positions)
    with effort.of(calls=2 * groups):
        for number, position in enumerate(positions):
            ledger.append(position, b"%d" % (number % groups), 0)
    with effort.of(calls=3 * groups):
        assert [ledger.acquire("first") for _ in positions] == sorted(positions)
        assert [ledger.acquire("nobody") for _ in range(groups)] == [None] * groups
    later = [max(pair) for pair in zip(positions[:groups], positions[groups:], strict=True)]
    with effort.of(calls=2 * groups):
        assert [ledger.release("first", counted) for counted in later] == [[counted] for counted in later]
        assert [ledger.acquire("first") for _ in later] == sorted(later)
    with effort.of(calls=3 * groups):
        assert ledger.close("first") == sorted(positions)
        for number in range(0, groups, 2):
            ledger.purge(b"%d" % number)
        while (found := ledger.acquire("second")) is not None:
            ledger.acknowledge("second", found)
    assert len(ledger) == 0
    return effort.per_call


def test_a_call_costs_no_more_than_the_logarithm() -> None:
    """The cost of a call grows no faster than the logarithm, from 100 to 1,000 groups."""
    few, many = _life(100), _life(1_000)

    assert many / few < math.log2(1_000) / math.log2(100)


def _bytes_kept(action: Callable[[], None]) -> int:
    """Memory that is still there afterwards."""
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    action()
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
def test_groups_that_come_and_go() -> None:
    """Nothing is kept of groups and consumers that have passed through, however many."""
    ledger: GroupLedger[int] = GroupLedger(prefetch=2)
    ledger.append(0, A, 0)
    ledger.append(1, A, 0)
    ledger.acquire("holds the first")

    def pass_through(start: int) -> None:
        for number in range(start, start + 30_000, 10):
            for position in range(number, number + 10):
                ledger.append(position, None if position % 10 == 1 else b"%d" % (position // 3), 0)
            for _ in range(8):
                ledger.acquire(number)
            ledger.acknowledge(number, number)
            ledger.reject(number, number + 1)
            ledger.close(number)
            for group in {position // 3 for position in range(number, number + 10)}:
                ledger.purge(b"%d" % group)

    pass_through(10)
    assert _bytes_kept(lambda: pass_through(50_000)) < 20_000
    assert len(ledger) == 2


@pytest.mark.usefixtures("traced")
def test_taken_and_put_back() -> None:
    """A message may be taken and put back as often as anybody will: no trace is left."""
    ledger = _ledger("AB" * 100, prefetch=3)

    def back_and_forth() -> None:
        for _ in range(10_000):
            ledger.acquire("first")
            ledger.release("first", 0)

    back_and_forth()
    assert _bytes_kept(back_and_forth) < 20_000


@pytest.mark.usefixtures("traced")
def test_purged_and_never_asked_for() -> None:
    """A purged message is not kept, even behind older waiting ones, which are found afterwards."""
    ledger = _ledger(".AB")

    def purge_all() -> None:
        for number in range(10, 20_000):
            ledger.append(number, b"%d" % number, 0)
            ledger.purge(b"%d" % number)

    purge_all()
    assert _bytes_kept(purge_all) < 20_000
    assert _all(ledger, "first") == [0, 1, 2]
