"""The position where reading resumes, by the last record and the present log."""

import logging
from dataclasses import replace

import pytest

from ringfence_client.handlers.retries import Failures
from ringfence_client.progress.lease import Lease
from ringfence_client.progress.progress_record import HELD, Progress
from ringfence_client.progress.resume_offset import (
    Log,
    Resumption,
    log_beginning,
    resume,
    survived,
    unrecorded,
)

RECORD = Progress(
    100, finished=[(110, 120)], attempts={105: 2}, reserved=200, holder="other", purged={b"g": (120, 150)}, state=HELD, token=7, delivered=121, topic_id="A",
)  # fmt: skip
LOG = Log("A", 100, 0, 500)
FRESH = Progress(0, topic_id="B")


def test_nothing_has_changed() -> None:
    """The record is taken as it is, whatever became of the offset's own; without one the group's offset counts, or else the start."""
    assert resume(RECORD, LOG) == Resumption(RECORD)
    assert resume(RECORD, replace(LOG, committed=None)) == Resumption(RECORD)
    assert resume(None, LOG).progress == Progress(100, topic_id="A")
    assert resume(None, replace(LOG, committed=None, start=30)).progress == Progress(30, topic_id="A")


@pytest.mark.parametrize("committed", [None, 100])
@pytest.mark.parametrize("end", [0, 50, 500])
@pytest.mark.parametrize("start", [0, 20])
def test_another_topic(committed: int | None, end: int, start: int) -> None:
    """A recreated topic is read from its start, however far it has grown, or from an offset that was set in it."""
    fresh = Resumption(replace(FRESH, next=start), recreated=True)
    assert resume(RECORD, Log("B", committed, start, max(start, end))) == fresh

    found = resume(RECORD, Log("B", 40, 0, 500))
    assert found == Resumption(replace(FRESH, next=40), recreated=True, moved=True)


@pytest.mark.parametrize("committed", [0, 40, 110, 400])
def test_offset_that_was_moved(committed: int) -> None:
    """An offset that was moved counts, and messages finished above it do not."""
    moved = Resumption(Progress(committed, topic_id="A"), moved=True)
    assert resume(RECORD, replace(LOG, committed=committed)) == moved


def test_lost_tail() -> None:
    """A log that ends before the finished offset has lost its tail, whether record or group gives that offset."""
    assert resume(RECORD, replace(LOG, end=99)) == Resumption(Progress(0, topic_id="A"), lost_tail=True)
    assert resume(RECORD, replace(LOG, end=100)) == Resumption(RECORD)
    assert resume(None, replace(LOG, end=99)).lost_tail
    moved = Resumption(Progress(0, topic_id="A"), moved=True, lost_tail=True)
    assert resume(RECORD, replace(LOG, committed=600, end=99)) == moved


def test_gap() -> None:
    """Messages deleted by retention count as finished, and the record stays valid for the rest."""
    found = resume(RECORD, replace(LOG, start=107))

    assert found == Resumption(replace(RECORD, next=107, attempts={}), gap=7)
    beyond = resume(RECORD, replace(LOG, start=112)).progress
    assert (beyond.next, beyond.finished) == (120, [])
    assert resume(None, replace(LOG, start=112)).gap == 12


@pytest.mark.parametrize(("start", "missed"), [(100, 0), (101, 1), (110, 10), (115, 10), (125, 15)])
def test_how_much_is_missing(start: int, missed: int) -> None:
    """A finished message above the start is not missing, and a message to be repeated is."""
    assert resume(RECORD, replace(LOG, start=start)).gap == missed
    assert resume(replace(RECORD, again=(98, 99)), replace(LOG, start=start)).gap == missed + 2 * bool(missed)


@pytest.mark.parametrize("committed", [501, 10_000])
def test_offset_that_was_set_beyond_the_end(committed: int) -> None:
    """An offset beyond the end names no message, so the record decides, and in a recreated topic the start."""
    assert resume(RECORD, replace(LOG, committed=committed)) == Resumption(RECORD, beyond=True)
    beyond = Resumption(replace(FRESH, next=3), recreated=True, beyond=True)
    assert resume(RECORD, Log("B", committed, 3, 500)) == beyond


LEASE = Lease("billing", "orders.accepted", 0, "holder", "")


@pytest.mark.parametrize(
    ("recorded", "committed", "is_said"),
    [(None, 40, True), (None, None, False), (Progress(40, topic_id="A"), 40, False)],
    ids=["lost", "new", "there"],
)
def test_a_lost_progress_record(
    recorded: Progress | None, committed: int | None, is_said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """An offset alone says nothing of messages that were finished above it: they come again, and somebody must know."""
    log_now = Log("A", committed, 0, 500)

    with caplog.at_level(logging.WARNING, "ringfence.consumer"):
        log_beginning(LEASE, recorded, log_now, resume(recorded, log_now))

    assert ("no progress record" in caplog.text) == is_said


BEFORE = Progress(0, attempts={1: 3, 2: 1, 3: 2}, failures={1: Failures(1, 0), 3: Failures(2, 0)}, state=HELD)
"""Message 1 outlived two processes, message 2 one."""


def test_attempts_of_a_process_that_lives_are_forgotten() -> None:
    """Earlier deaths and all failures stay; what was begun and did not fail since counts no more, and nothing is suspected."""
    attempts = {1: 4, 2: 3, 3: 4, 4: 1}
    failures = {**BEFORE.failures, 2: Failures(1, 0), 3: Failures(3, 0)}
    later = Progress(0, attempts=attempts, failures=failures, state=HELD)

    assert unrecorded(BEFORE) == {1: 2, 2: 1}
    found = survived(later, unrecorded(BEFORE))

    assert found.attempts == {1: 3, 2: 2, 3: 3}
    assert unrecorded(found) == unrecorded(BEFORE)
    assert found.failures == later.failures
    assert found.released
