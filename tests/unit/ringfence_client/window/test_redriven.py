"""Messages that are done once more, and groups that wait behind dead letters, as a window has them."""

import dataclasses
import random

import pytest

from ringfence_client.handlers.retries import Failures
from ringfence_client.progress.progress_record import Progress, decode, encode
from ringfence_client.progress.resume_offset import Log, resume
from ringfence_client.window import redrive_queue
from ringfence_client.window.memory_budget import MemoryBudget
from ringfence_client.window.window import End, Window
from tests.support.consumers.windows import Fetched, of


def _window(progress: Progress) -> Window:
    return Window(progress, memory=MemoryBudget(64 * 2**20))


def _written(window: Window, **options: object) -> Progress:
    return decode(encode(window.progress(**options)))  # type: ignore[arg-type]


def _do_next(window: Window) -> int | None:
    offset = window.ledger.acquire("handler")
    if offset is not None:
        window.attempts.begin_attempt(offset)
        window.finish(offset, End.ACK, "handler")
    return offset


def test_asked_twice() -> None:
    """A redrive with the same number changes nothing, even after it was done; the next number does."""
    window = _window(Progress(0))
    window.feed(of(b"a", 0))
    _do_next(window)

    assert [window.redrive(0, 1), window.redrive(0, 1)] == [True, False]

    window.add_redriven(Fetched(0, b"a"))
    _do_next(window)
    after = _window(_written(window))

    assert [after.redrive(0, 1), after.redrive(0, 2)] == [False, True]


def test_another_dead_letter() -> None:
    """A redriven message that fails again is finished by its new dead letter. Redriven within its turn, it is brought afterwards."""
    window = _window(Progress(0))
    window.feed(of(b"a", 0))
    assert window.ledger.acquire("handler") == 0
    window.attempts.begin_attempt(0)
    window.attempts.fail(0, 0)
    window.finish(0, End.DEAD_LETTER)

    assert window.redrive(0, 1)
    assert not window.add_redriven(Fetched(0, b"a"))

    window.finish(0, End.REJECT, "handler")

    assert window.redrives.missing() == [0]
    assert window.add_redriven(Fetched(0, b"a"))
    assert window.ledger.acquire("handler") == 0
    assert window.attempts.begin_attempt(0) == 1
    assert _written(window, dead_lettered=frozenset([0])).again == ()
    assert _written(window).again == (0,)

    window.finish(0, End.DEAD_LETTER)
    window.finish(0, End.REJECT, "handler")

    assert (_written(window).again, _written(window).redriven) == ((), {0: 1})


def test_blocked() -> None:
    """A blocked message is not finished, for a successor neither; redriven, it is tried from the first attempt on."""
    window = _window(Progress(0))
    window.feed(of(b"a", 0, 1))
    window.ledger.acquire("handler")
    window.attempts.begin_attempt(0)
    window.attempts.fail(0, 0)
    written = _written(window, blocking=frozenset([0]))
    window.redrives.blocked.add(0)

    assert (written.next, written.blocked) == (0, (0,))
    assert _written(window).blocked == (0,)

    after = _window(written)
    after.feed(of(b"a", 0, 1))

    assert after.redrives.blocked == {0}
    assert after.redrive(0, 1)
    assert (after.redrives.blocked, after.redrives.missing()) == (set(), [])
    assert (after.attempts.counts, after.attempts.failures) == ({}, {})
    assert [_do_next(after), _do_next(after), after.next] == [0, 1, 2]


def test_dropped_and_redriven_without_a_consumer() -> None:
    """A blocked message that was dropped is finished: redriven afterwards it comes once more, for the next holder too."""
    window = _window(Progress(2, blocked=(3,), attempts={3: 5}, failures={3: Failures(5, 0)}))
    window.finish(3, End.GONE)
    assert window.redrives.blocked == set()
    window.purge(b"a", 4)
    dropped = _written(window)

    assert (dropped.next, dropped.finished, dropped.blocked) == (2, [(3, 4)], ())
    assert (dropped.attempts, dropped.failures) == ({}, {})

    between = _window(dropped)
    assert between.redrive(3, 1)
    after = _window(_written(between))
    after.feed(of(b"a", 2, 3, 4))

    assert after.redrives.missing() == [3]
    assert after.add_redriven(Fetched(3, b"a"))
    assert [_do_next(after) for _ in range(4)] == [3, 4, None, None]
    assert after.next == 5


def test_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limited number of redrives may wait. Counts are kept for a limited number, and for all that wait."""
    monkeypatch.setattr(redrive_queue, "AGAIN_MAX", 3)
    monkeypatch.setattr(redrive_queue, "REDRIVEN_MAX", 4)
    window = _window(Progress(10))
    for offset in range(3):
        window.redrive(offset, 1)
    with pytest.raises(OverflowError):
        window.redrive(3, 1)
    for offset in range(3):
        window.add_redriven(Fetched(offset, None))
    for offset in range(3, 6):
        _do_next(window)
        window.redrive(offset, 1)

    assert list(window.redrives.counts) == [2, 3, 4, 5]


def test_offset_was_set() -> None:
    """A message redriven below the new offset remains due; those above it are read in any case."""
    recorded = Progress(10, again=(2, 8), blocked=(2, 9), redriven={2: 1}, topic_id="t")
    found = resume(recorded, Log("t", 5, 0, 20)).progress

    assert (found.next, found.again, found.blocked, found.redriven) == (5, (2,), (2,), {2: 1})
    assert resume(recorded, Log("other", 5, 0, 20)).progress.again == ()
    assert resume(recorded, Log("t", 10, 4, 20)).progress.again == (2, 8)
    assert resume(dataclasses.replace(recorded, next=3), Log("t", 3, 4, 20)).progress.again == (8,)


GROUPS = (b"a", b"b", None)


class _Story:
    """One partition in the hands of one holder after another, and how often each of its messages was done, and should be."""

    COUNT = 30

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.window = _window(Progress(0))
        self.done = dict.fromkeys(range(self.COUNT), 0)
        self.wanted = dict.fromkeys(range(self.COUNT), 1)
        self.fed = 0

    def fetch(self, upto: int) -> None:
        """Fetch on, sometimes from an offset that was fetched before."""
        begin = max(0, self.fed - self.chance.randrange(3))
        self.window.feed([Fetched(index, GROUPS[index % 3]) for index in range(begin, upto)])
        self.fed = max(self.fed, upto)

    def purge(self) -> None:
        """Drop messages of a group, fetched or not, as an operator does; more may be fetched meanwhile."""
        fetched = min(self.COUNT, self.fed + self.chance.randrange(2))
        kind, below = self.chance.randrange(2), self.chance.randint(fetched, self.COUNT)
        group = (b"a", b"b")[kind]
        groups = {number: GROUPS[number % 3] for number in self.window.unfetched(below)}
        self.fetch(fetched)
        self.window.drop_unfetched(group, groups)
        self.window.purge(group, below)
        for number in range(kind, below, 3):
            self.wanted[number] = self.done[number]

    def add_redriven(self, share: float = 1.0) -> None:
        for number in self.window.redrives.missing():
            record = Fetched(number, GROUPS[number % 3])
            if self.chance.random() < share and self.window.add_redriven(record):
                assert not self.window.add_redriven(record), "it is there"

    def work(self) -> bool:
        offset, missing = _do_next(self.window), self.window.redrives.missing()
        if offset is None:
            return False
        self.done[offset] += 1
        ahead = [number for number in range(offset % 3, min(offset, self.fed), 3) if number not in missing]
        assert offset % 3 == 2 or not any(self.wanted[number] > self.done[number] for number in ahead)
        return True

    def redrive(self) -> None:
        offset = self.chance.randrange(self.COUNT)
        if self.window.redrive(offset, self.window.redrives.counts.get(offset, 0) + 1):
            self.wanted[offset] += 1
        self.add_redriven(0.5)

    def hand_over(self) -> None:
        self.window = _window(_written(self.window))
        fed, self.fed = self.fed, self.window.next
        self.fetch(fed)


def test_each_exactly_as_often_as_asked() -> None:
    """Random finishing, redrives, purges and changes of the holder: nothing is done more often, or less, than asked for."""
    for seed in range(150):
        story = _Story(seed)
        for _ in range(150):
            what = story.chance.randrange(5)
            if story.chance.random() < 0.02:
                story.purge()
            elif what == 0:
                story.fetch(min(story.COUNT, story.fed + 1))
            elif what == 1:
                story.redrive()
            elif what == 2:
                story.hand_over()
            else:
                story.work()
        story.fetch(story.COUNT)
        story.add_redriven()
        while story.work():
            pass

        assert (seed, story.wanted) == (seed, story.done)
        assert story.window.next == story.COUNT
