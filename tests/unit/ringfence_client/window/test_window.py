import dataclasses
import random

import pytest

from ringfence_client.handlers.retries import Failures
from ringfence_client.progress.progress_record import Progress
from ringfence_client.window.memory_budget import MemoryBudget
from ringfence_client.window.window import AHEAD_MAX, AHEAD_MIN, End, Window
from tests.support.consumers.windows import Fetched, of


def _window(progress: Progress, *, bytes_max: int = 64 * 2**20, **options: int) -> Window:
    """``bytes_max``: what it may use, being alone."""
    return Window(progress, memory=MemoryBudget(bytes_max * 16 // 9), **options)


def _finish_next(window: Window) -> int | None:
    """Take the oldest available message and finish it, as a handler does that reads it again where it is parked."""
    offset = window.ledger.acquire("handler")
    if offset is None:
        return None
    if window.cache.record(offset) is None:
        window.cache.unpark([Fetched(offset, window.group_of(offset))], always=True)

    assert window.cache.record(offset) is not None

    window.finish(offset, End.ACK, "handler")
    return offset


# -- what comes in ------------------------------------------------------------------------------------------------


def test_holes() -> None:
    """Offsets that nothing was read of, within what is fed and after it, hold nothing up."""
    window = _window(Progress(0))
    window.feed(of(b"a", 3, 7))
    window.reached(20)

    assert window.next == 3
    assert [_finish_next(window), window.next] == [3, 7]
    assert [_finish_next(window), window.next, window.end] == [7, 20, 20]


def test_stored_runs() -> None:
    """Messages above ``next`` that the last holder finished are not repeated, and are recorded again."""
    window = _window(Progress(5, finished=[(6, 8), (10, 11)]))

    window.feed(of(b"a", *range(5, 12)))
    assert [_finish_next(window) for _ in range(5)] == [5, 8, 9, 11, None]
    assert window.next == 12


# -- attempts -----------------------------------------------------------------------------------------------------


def test_attempts() -> None:
    """Attempts continue from the last holder's count. One that is taken back does not count, and a finish forgets them."""
    window = _window(Progress(0, attempts={1: 2}))
    window.feed(of(b"a", 0) + of(b"b", 1))

    assert [window.attempts.begin_attempt(offset) for offset in (0, 0, 1)] == [1, 2, 3]

    window.attempts.take_back(0)
    window.attempts.take_back(1)
    assert window.attempts.counts == {0: 1, 1: 2}

    window.attempts.take_back(0)
    window.attempts.take_back(0)
    assert window.attempts.counts == {1: 2}

    _finish_next(window)
    _finish_next(window)
    assert window.attempts.counts == {}


def test_suspects() -> None:
    """Messages reserved by a holder that did not leave may have run when it died; those of one that left did not."""
    assert _window(Progress(0, reserved=70, state="held")).suspect_below == 70
    assert _window(Progress(0, reserved=70, state="released")).suspect_below == 0


def test_reserved() -> None:
    """A record reserves ahead of what handlers were given; nothing is reserved before one is written, and never less again."""
    window = _window(Progress(0, reserved=70, state="held"))

    assert window.reserved == 0

    window.feed(of(b"a", *range(5_000)))

    assert window.progress().reserved == AHEAD_MIN

    window.attempts.begin_attempt(2_999)
    progress = window.progress()

    assert progress.reserved == 3_000 + 4 * 3_000

    window.written(progress)

    assert window.progress().reserved == progress.reserved

    window.attempts.begin_attempt(999_999)

    assert window.progress().reserved == 1_000_000 + AHEAD_MAX


def test_buried() -> None:
    """A message that becomes a dead letter is finished by the record written with it, and keeps its group until then."""
    window = _window(Progress(0))
    window.feed(of(b"a", 0, 1))
    window.attempts.begin_attempt(0)
    window.attempts.fail(0, 7)
    window.ledger.acquire("x")
    without, beside = window.progress(), window.progress(dead_lettered=(0,))

    assert (without.next, without.attempts, without.failures) == (0, {0: 1}, {0: (1, 7)})
    assert (beside.next, beside.attempts, beside.failures, beside.running) == (1, {}, {}, 0)
    assert window.next == 0

    window.finish(0, End.DEAD_LETTER)

    assert window.next == 1
    assert window.progress() == dataclasses.replace(beside, beat=0)
    assert window.ledger.acquire("y") is None
    assert window.cache.record(0) is not None

    window.finish(0, End.REJECT, "x")

    assert window.ledger.acquire("y") == 1
    assert (window.unfinished, window.cache.record(0)) == (1, None)


# -- what is parked -----------------------------------------------------------------------------------------------


def test_parked_in_order() -> None:
    """A group's messages come in order, each once, however many are parked."""
    chance = random.Random(7)
    window = _window(Progress(0), records_max=20)
    groups = [chance.choice([b"a", b"b", b"c", None]) for _ in range(300)]
    window.feed([Fetched(offset, group) for offset, group in enumerate(groups)])

    assert window.counts["parked"] > 200
    assert [_finish_next(window) for _ in range(301)] == [*range(300), None]
    assert window.counts == {"undone": 0, "kept": 0, "parked": 0}


def test_half_is_filled() -> None:
    """Half of a window is filled in any case, fetch by fetch; the rest only for handlers that lack work."""
    window = _window(Progress(0), records_max=20)
    window.feed([Fetched(index, b"%d" % index) for index in range(8)])

    assert window.wants_more(0, 2)
    assert not window.wants_more(0, 3)
    assert window.wants_more(1, 3)


@pytest.mark.parametrize("finished", [0, 1, 5])
def test_stuck_group(finished: int) -> None:
    """A stuck group with a backlog, whatever part of its share it has kept, never keeps the others from being fetched."""
    window = _window(Progress(0), records_max=1_000)
    window.feed(of(b"stuck", *range(800)))
    for _ in range(finished):
        _finish_next(window)

    assert window.ledger.acquire("stuck for good") == finished
    assert window.counts["parked"] == 300
    assert not window.wants_more(0)
    assert window.wants_more(1)


def _quick(window: Window, count: int) -> None:
    window.tick(100.0)
    for _ in range(count):
        _finish_next(window)
    window.tick(100.125)


def test_look_in_vain() -> None:
    """A look that brought no new group is not repeated at once: the window has to move on, or to stand nearly still."""
    window = _window(Progress(0), records_max=1_000)
    window.feed([Fetched(index, b"%d" % (index % 3)) for index in range(1_000)])
    kept = window.counts["kept"]
    _quick(window, 200)

    assert kept == 750
    assert window.wants_more(50)

    window.feed([Fetched(1_000 + index, b"%d" % (index % 3)) for index in range(10)])

    assert not window.wants_more(50)

    while window.counts["kept"] > 550 * 3 // 4:
        assert not window.wants_more(50)
        _finish_next(window)

    assert window.wants_more(50)


# -- what an operator drops ---------------------------------------------------------------------------------------


def test_skipped() -> None:
    """A skip drops the first message of a group that nobody owns, kept or parked, and its attempts, for a successor too."""
    window = _window(Progress(0), records_max=10)
    window.feed(of(b"a", 0, 1) + of(b"b", 2))
    window.attempts.counts[0] = 3
    window.ledger.acquire("x")

    assert window.skip(b"a") == 0
    assert window.skip(b"none") == 0

    window.ledger.close("x")

    assert [window.skip(b"a"), window.skip(b"a"), window.skip(b"a")] == [1, 1, 0]
    assert (window.progress().next, window.attempts.counts) == (2, {})
    assert window.counts == {"undone": 1, "kept": 1, "parked": 0}


def test_purged_while_it_failed() -> None:
    """A message that was dropped while its partition had no holder keeps neither attempts nor failures."""
    failures = {0: Failures(2, 0), 1: Failures(3, 0)}
    window = _window(Progress(0, attempts={0: 2, 1: 3}, failures=failures, purged={b"a": (0, 1)}))
    window.feed(of(b"a", 0, 1))
    written = window.progress()

    assert (written.next, written.attempts, written.failures) == (1, {1: 3}, {1: Failures(3, 0)})


def test_failures_of_what_is_finished() -> None:
    """A record that names some is read without them, but for what is to be done again."""
    offsets = (1, 2, 4, 5, 6)
    failures = dict.fromkeys(offsets, Failures(1, 0))
    progress = Progress(
        4, finished=[(5, 6)], attempts=dict.fromkeys(offsets, 1), failures=failures, again=(2,)
    )
    window = _window(progress)

    assert (sorted(window.attempts.counts), sorted(window.attempts.failures)) == ([2, 4, 6], [2, 4, 6])


def test_parked_messages_of_another_log() -> None:
    """A parked offset with another group or time shows another log, so none of the records read are kept."""
    for stranger in (Fetched(4, timestamp=7), Fetched(4, b"other"), Fetched(4, None)):
        window = _window(Progress(0), records_max=4)
        window.feed(of(b"group", *range(6)))

        assert window.cache.parked == {2, 3, 4, 5}
        assert not window.unpark([Fetched(2), Fetched(3), stranger], always=True)
        assert window.cache.parked == {2, 3, 4, 5}
        assert window.unpark([Fetched(2), Fetched(9, b"later")], always=True)
        assert window.cache.parked == {3, 4, 5}
