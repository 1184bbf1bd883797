"""Offset ranges of a run, and kept IDs: pure."""

from agents.lane.journal import RingEvent, opening_event
from reconcile.run.history.cut import Position, Span, TopicState, cut_topic, journal_lost
from reconcile.run.history.history import Run
from reconcile.run.history.id_store import expendable, heirs
from reconcile.run.verdict.summary import address_counts, verdict
from tables.codec import Meta


def _state(start: int, cut: int | None, end: int, topic_id: str = "id") -> TopicState:
    return TopicState(topic_id, (start,), (cut,), (end,))


def _last(end: int, topic_id: str = "id", origin: int = 0) -> Position:
    return Position(topic_id, (origin,), (end,))


def test_span() -> None:
    """A run continues from the end of the last one to the committed offset, and never goes back."""
    for now, last, span in (
        (_state(0, 7, 9), None, Span(0, 0, 0, 7, 9)),  # the first run
        (_state(0, 7, 9), _last(5), Span(0, 5, 5, 7, 9)),  # goes on
        (_state(3, 7, 9), _last(5), Span(0, 5, 5, 7, 9)),  # retention is behind it
        (_state(0, None, 9), None, Span(0, 0, 0, 0, 9)),  # nothing is committed
        (_state(0, None, 9), _last(5), Span(0, 5, 5, 5, 9)),  # it expired
        (_state(0, 3, 9), _last(5), Span(0, 5, 5, 5, 9)),  # it went back
        (_state(0, 12, 9), _last(5), Span(0, 5, 5, 9, 9)),  # beyond the end
    ):
        made = cut_topic("t", now, last)

        assert (made.spans, made.lost, made.recreated) == ([span], [], False)
        assert made.position == Position("id", (span.origin,), (span.cut,))


def test_lost_evidence() -> None:
    """Evidence lost to retention or deletion is reported with the first and the last missing offset."""
    for now, last, span, lost, recreated, text in (
        (_state(4, 7, 9), None, Span(4, 0, 4, 7, 9), (0, 4), False, "offsets 0 to 3"),
        (_state(6, 7, 9), _last(5), Span(0, 5, 6, 7, 9), (5, 6), False, "offset 5"),
        (_state(0, 2, 3), _last(5), Span(0, 3, 3, 3, 3), (3, 5), True, "offsets 3 to 4"),
        (_state(0, 2, 3, "new"), _last(5), Span(0, 0, 0, 2, 3), (5, 5), True, "from offset 5 on"),
    ):
        made = cut_topic("t", now, last)

        assert (made.spans, made.recreated) == ([span], recreated)
        assert [(item.begin, item.end) for item in made.lost] == [lost]
        assert all(item.why for item in made.lost)
        assert made.lost[0].text.startswith(f"{text}: ")


def test_a_run_that_nobody_acknowledged_proves_what_was_there() -> None:
    """A run without acknowledgement still proves which records existed.

    Its results do not count, so the next run begins before it. A topic that is another one by now is a GAP, and not a loss.
    """
    seen = [_last(90, "old"), _last(70, "older"), _last(3)]
    for last in (None, _last(5, "older")):
        made = cut_topic("t", _state(0, 7, 9), last, seen)
        assert made.recreated
        assert [(item.begin, item.why) for item in made.lost] == [(90, "it was deleted and created again")]
        assert made.spans == [Span(0, 0, 0, 7, 9)]

    shorter = cut_topic("t", _state(0, 7, 9), _last(5), [_last(20)])
    assert [(item.begin, item.end) for item in shorter.lost] == [(9, 20)]
    assert shorter.recreated
    assert cut_topic("t", _state(0, 7, 9), _last(5), [_last(9)]).lost == []

    journal = journal_lost("j", _last(9, "new"), None, [_last(4, "old")])
    assert [(item.begin, item.why) for item in journal] == [(4, "it was deleted and created again")]
    assert journal_lost("j", _last(9), None, [_last(4)]) == []


def _run(number: int, date: str, accepted: int) -> Run:
    return Run(number, number - 1 or None, date, "clean", accepted={"a": {0: accepted}})


def test_ids_are_kept_while_a_ring_may_know_them() -> None:
    """Age alone forgets nothing: the ring must have turned over since. No address waits for the rings of another.

    IDs are kept until each successor lane that may know them has turned over.
    """
    chain = [_run(3, "2026-11-20", 5), _run(2, "2026-11-02", 5), _run(1, "2026-11-01", 5)]

    assert expendable(chain, "2026-11-21", 7, {"a": 5}) == {("a", 2), ("a", 1)}
    assert expendable(chain, "2026-11-21", 7, {"a": 6}) == {("a", 1)}
    assert expendable(chain, "2026-11-21", 7, {"a": 11}) == set()
    assert expendable(chain, "2026-11-21", 30, {"a": 0}) == set()
    for run in chain:
        run.accepted["quiet"] = {0: 1}
    assert expendable(chain, "2026-11-21", 7, {"a": 5, "quiet": 9}) == {("a", 2), ("a", 1)}
    for run, lanes in zip(chain, (4, 2, 2), strict=True):
        run.positions = {"a-input": Position("id", (0,) * lanes, (9,) * lanes)}
        run.rules, run.accepted = {"a": {"input_topic": "a-input"}}, {"a": {0: 5}}
    for expended in (set(), {("a", 2), ("a", 1)}):
        found = expendable(chain, "2026-11-21", 7, {"a": 5}, lambda *of: heirs(chain[0], {}, *of))
        assert found == expended
        chain[0].accepted["a"][2] = 5


def test_verdict() -> None:
    """A certain anomaly takes precedence over an unknown state in the verdict; OVERRUN is allowed up to its limit."""

    def judged(a: dict[str, int], b: dict[str, int], duplicates: int = 999) -> str:
        counted = {"input": 10_000, "diverted": duplicates}
        found = {
            name: address_counts(counted, anomalies, {}, divert=True)
            for name, anomalies in (("a", a), ("b", b))
        }
        return verdict(found, 0.001)

    assert judged({"OVERRUN": 1}, {"LOST": 0}) == "clean"
    assert judged({"OVERRUN": 2}, {"LOST": 0}) == "anomalies"
    assert judged({}, {"OVERRUN": 1}, duplicates=0) == "anomalies"
    assert judged({"GAP": 1}, {"OVERRUN": 1}) == "gap"
    assert judged({"GAP": 1}, {"OVERRUN": 2}) == "anomalies"
    assert judged({"GAP": 1}, {"CROSS-LANE": 1}) == "anomalies"
    assert judged({}, {}, duplicates=0) == "clean"


def test_the_share_of_overrun() -> None:
    """OVERRUN is a share of all duplicates: of those that were caught, by a hop too, and of its own.

    Missing inputs that are not lost count as dropped duplicates, unless duplicates are diverted.
    """
    counted = {"input": 10, "unmatched": 5, "bridge_dropped": 2, "diverted": 1}
    made = address_counts(counted, {"OVERRUN": 4}, {}, divert=False, times=(3, 9))

    assert (made["duplicates"], made["overrun_share"], made["times"]) == (6, 0.4, (3, 9))
    assert address_counts({}, {}, {}, divert=False)["overrun_share"] == 0
    lost = address_counts(counted, {"LOST": 1, "GAP": 2}, {}, divert=False, unknown=1)
    assert (lost["duplicates"], lost["anomalies"]["LOST"], lost["anomalies"]["TORN"]) == (4, 1, 0)
    assert address_counts(counted, {"LOST": 4}, {}, divert=True)["duplicates"] == 3


def test_openings_that_are_told() -> None:
    """An opening is reported only if it changes an existing ring; a new one has nothing to forget."""
    meta = Meta(10, 3, 0, {}, {}, "i")
    memory = meta._replace(persistent=False)

    assert opening_event(None, 10, persistent=False) is opening_event(meta, 10, persistent=True) is None
    assert opening_event(meta, 9, persistent=True) is RingEvent.RESIZED
    for former, capacity, persistent in ((meta, 10, False), (meta, 9, False), (memory, 10, True)):
        assert opening_event(former, capacity, persistent=persistent) is RingEvent.FORGOTTEN
