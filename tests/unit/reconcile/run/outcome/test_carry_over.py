"""State between runs, with other configurations and topics: pure."""

from pathlib import Path
from typing import Any

import pytest

from reconcile import job
from reconcile.anomalies.names import Anomaly
from reconcile.cluster.admin import TopicFacts
from reconcile.cluster.survey import Survey
from reconcile.run.frames.scope import begin
from reconcile.run.history import id_store
from reconcile.run.history.cut import AddressCut, Lost, Position, Span, TopicCut, journal_lost, positions
from reconcile.run.history.history import Run, RunHistory
from reconcile.run.history.layout import ids_folder, results_folder
from reconcile.run.history.rings import Rings
from reconcile.run.history.rules import doubts, kept
from reconcile.run.measures.counts import Judgement
from reconcile.run.outcome import carry_over
from reconcile.spark.files import LocalFiles
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import PrerequisiteError

TODAY = "2026-11-21"
JOURNAL = {"app-journal": Position("j", (0,), (7,))}
ROLES = ("input", "forward", "accepted", "quarantine")

RINGS = Rings.of(0, 1)


def _settings(*names: str, **keys: Any) -> Settings:
    entries = [{"name": name, "id_cache_size": 5, **keys} for name in names]
    return validate({"app": {"id": "app"}, "addresses": entries})


def _cut(name: str, end: int = 10) -> AddressCut:
    topics = [TopicCut(f"{name}-{role}", "id", [Span(0, 0, 0, end, end)]) for role in ROLES]
    return AddressCut(topics[0], topics[1], topics[2], topics[3], None, (3,))


def _survey(
    end: int, committed: int | None = None, start: int = 0, journal: dict[int, tuple[int, int]] | None = None
) -> Survey:
    """Topics of address a that end at ``end``; the input begins at ``start``."""
    topics = ("a", "app-a-forward", "a.accepted", "a.quarantine")
    ends = {(topic, 0): end for topic in topics}
    consumed = {**ends, ("a", 0): end if committed is None else committed}
    starts = {**dict.fromkeys(ends, 0), ("a", 0): start}
    roles = {"a": dict(zip(ROLES, topics, strict=True))}
    facts = {topic: TopicFacts("id", 1) for topic in topics}
    return Survey("cluster", roles, facts, consumed, starts, ends, ends, journal or {}, JOURNAL)


def _handed_on(
    settings: Settings,
    base: Run | None,
    cuts: dict[str, AddressCut],
    number: int,
    ids: int = 4,
    largest: int = 5,
) -> Run:
    """Return the clean run that accepted so many IDs of each address."""
    found = Judgement(
        accepted={cut: {0: ids} for cut in cuts},
        emptied={cut: {} for cut in cuts},
        times=dict.fromkeys(cuts, (1, 2)),
        largest=dict.fromkeys(cuts, largest),
    )
    document = {"night": number, "verdict": "clean", "addresses": {}}
    events_from = carry_over.events_from(base, cuts, JOURNAL)
    return carry_over.finished_run(
        settings, base, cuts, found, document, TODAY, JOURNAL, events_from, "cluster", [RINGS] * len(cuts)
    )


def test_an_address_that_is_away_for_a_run() -> None:
    """An address that is not configured in a run keeps everything as its last run left it."""
    first = _handed_on(_settings("a", "b"), None, {"a": _cut("a"), "b": _cut("b")}, 1)
    second = _handed_on(_settings("a"), first, {"a": _cut("a", 20)}, 2)
    third = _handed_on(_settings("a", "b"), second, {"a": _cut("a", 30), "b": _cut("b", 20)}, 3)

    assert second.positions["a-input"].ends == (20,)
    assert second.positions["b-input"].ends == (10,)
    assert second.known == {"a": {0: 8}, "b": {0: 4}}
    assert second.held == {"a": {0: 8}, "b": {0: 4}}
    assert second.consumed == {"a": {0: 3}, "b": {0: 3}}
    assert second.complete == {"a": True, "b": True}
    assert {name: second.left_by(name) for name in ("a", "b")} == {"a": 2, "b": 1}
    assert second.rules == first.rules
    assert list(second.accepted) == ["a"]
    assert (third.left, third.known["b"]) == ({"a": 3, "b": 3}, {0: 8})
    assert Run.from_json(third.to_json(), acknowledged=False) == third


def test_nothing_has_moved(tmp_path: Path) -> None:
    """A run repeats the last one only if it would judge the same addresses by the same rules."""
    settings = _settings("a", "b")
    cuts = {"a": _cut("a"), "b": _cut("b")}
    runs = RunHistory(LocalFiles(str(tmp_path)), {1: _handed_on(settings, None, cuts, 1)})

    def again(settings: Settings, **cuts: AddressCut) -> bool:
        return (
            runs.again(positions(cuts), {address.name: kept(address) for address in settings.addresses})
            is not None
        )

    assert again(settings, **cuts)
    assert not again(_settings("a"), a=cuts["a"])
    assert not again(_settings("a", "b", id_max_age=9), **cuts)
    assert not again(settings, a=_cut("a", 11), b=cuts["b"])


@pytest.mark.parametrize("topic", ["input", "accepted"])
def test_a_gap_leaves_ids_unknown(topic: str) -> None:
    """IDs stay unknown after a gap until the rings have turned over.

    A duplicate may refer to a record that nobody has seen.
    """
    settings = _settings("a")
    whole = _handed_on(settings, None, {"a": _cut("a")}, 1)
    cut = _cut("a")
    cut.topics()[topic].lost.append(Lost("t", 0, 10, 12, "gone"))
    gap = _handed_on(settings, whole, {"a": cut}, 2)
    after = _handed_on(settings, gap, {"a": _cut("a")}, 3)

    assert carry_over.complete(settings, whole, {"a": cut}) == {"a": False}
    assert [(run.complete["a"], run.known["a"][0]) for run in (whole, gap, after)] == [
        (True, 4), (False, 4), (True, 8),
    ]  # fmt: skip


def test_a_ring_that_the_configuration_switched_off_may_be_on() -> None:
    """A ring that only the configuration switched off keeps its IDs until workers restart.

    IDs stay unknown until the largest possible ring has turned over.
    """
    cut = _cut("a")
    cut.input.lost.append(Lost("t", 0, 10, 12, "gone"))
    off = _settings("a", id_cache_size=0)
    gap = _handed_on(_settings("a"), None, {"a": cut}, 1, ids=1)
    after = _handed_on(off, gap, {"a": _cut("a")}, 2)
    full = _handed_on(off, after, {"a": _cut("a")}, 3)

    assert [run.complete["a"] for run in (gap, after, full)] == [False, True, True]
    assert not _handed_on(off, gap, {"a": _cut("a")}, 2, ids=3).complete["a"]


def test_what_was_judged_is_not_missed(tmp_path: Path) -> None:
    """Records that the last run has judged may be deleted: the next run is empty and reports no GAP."""
    settings = _settings("a")
    (address,) = settings.addresses
    runs = RunHistory(LocalFiles(str(tmp_path)))
    base, cuts = begin(settings, runs, _survey(10))
    runs.finished[1] = _handed_on(settings, base, cuts, 1)
    assert runs.finished[1].rules == {"a": kept(address)}

    def spans(start: int) -> tuple[int | None, int]:
        base, cuts = begin(settings, runs, _survey(10, start=start))
        assert not any(cut.lost for cut in cuts.values())
        return base.number if base else None, cuts["a"].input.spans[0].begin

    assert spans(0) == (None, 0)
    assert spans(10) == (1, 10)


def test_what_a_run_reads(tmp_path: Path) -> None:
    """A run reads only the records since the last run, even if consumers are behind, and the whole journal."""
    settings = _settings("a")
    runs = RunHistory(LocalFiles(str(tmp_path)))
    first = _survey(1_000_000, journal={0: (2, 5)})
    assert job.Ready(runs, first).records(settings) == 4_000_000 + 3

    runs.finished[1] = _handed_on(settings, *begin(settings, runs, first), 1)
    assert job.Ready(runs, _survey(1_000_002, 1_000_001, journal={0: (2, 5)})).records(settings) == 4 * 2 + 3

    runs.finished[1].leaves = {f"{ids_folder(TODAY, 1)}/address=a": 1}
    with pytest.raises(PrerequisiteError, match="has 0 of the 1 Parquet files"):
        job.Ready(runs, _survey(1_000_002, 1_000_001, journal={0: (2, 5)})).records(settings)


def test_the_journal() -> None:
    """Lost events are reported once, for all addresses."""
    now = Position("j", (4,), (9,))
    cut = _cut("a")
    gone = journal_lost("journal", now, None)

    assert [(item.begin, item.end) for item in gone] == [(0, 4)]
    assert [(item.begin, item.end) for item in journal_lost("journal", now, Position("j", (1,), (3,)))] == [
        (1, 4)
    ]
    assert journal_lost("journal", now, Position("j", (4,), (5,))) == []
    assert [item.why for item in journal_lost("journal", now, Position("old", (4,), (5,)))] == [
        "it was deleted and created again"
    ]
    with_gap = AddressCut(cut.input, cut.forward, cut.accepted, cut.quarantine, None, (0,), gone)
    assert with_gap.lost == gone
    (doubt,) = doubts(_settings("a").addresses, {"a": with_gap}, None, [RINGS])
    assert (doubt.address, doubt.anomalies) == (0, frozenset({Anomaly.FORGOTTEN}))


def test_events_of_an_input_that_was_deleted() -> None:
    """Journal events from before a recreated input was seen do not concern it, in any later run."""
    settings = _settings("a", "b")
    first = _handed_on(settings, None, {"a": _cut("a"), "b": _cut("b")}, 1)
    cuts = {"a": _cut("a"), "b": _cut("b")}
    cuts["a"].input.topic_id = "new"
    second = _handed_on(settings, first, cuts, 2)
    third = _handed_on(settings, second, cuts, 3)

    assert (first.events_from, second.events_from, third.events_from) == ({}, {"a": 7}, {"a": 7})


def test_ids_that_are_forgotten(tmp_path: Path) -> None:
    """IDs are forgotten by address, except those that the last run needs to be judged again."""
    files = LocalFiles(str(tmp_path))
    runs, base = RunHistory(files), None
    settings, cuts = _settings("a", "quiet"), {"a": _cut("a"), "quiet": _cut("quiet")}
    for number in (1, 2, 3):
        base = _handed_on(settings, base, cuts, number, ids=5)
        base.date = "2026-11-01" if number < 3 else TODAY
        base.accepted["quiet"] = {0: 1}
        for cut in cuts:
            (tmp_path / ids_folder(base.date, number) / f"address={cut}").mkdir(parents=True)
        (tmp_path / results_folder(number)).mkdir(parents=True)
        runs.finished[number] = base
    id_store.forget(runs, TODAY, 7, {})

    # Run 3 turned the ring of "a" over; if it is judged again, run 2 is the only one that knows its duplicates.
    assert id_store.kept(files) == {1: ["quiet"], 2: ["a", "quiet"], 3: ["a", "quiet"]}
    assert id_store.count(runs, runs.last) == 1 + 6 + 6
    assert id_store.count(runs, runs.finished[2]) == 1 + 6
    assert files.names("results") == ["000002", "000003"]


def test_ids_of_a_ring_that_was_off_for_a_run(tmp_path: Path) -> None:
    """IDs of a ring switched off for one run are kept, because workers that were not restarted still know them."""
    runs = RunHistory(LocalFiles(str(tmp_path)))
    for number, day, size in ((1, "2026-11-01", 5), (2, "2026-11-20", 5), (3, TODAY, 0)):
        settings = _settings("a", id_cache_size=size)
        run = _handed_on(settings, runs.last, {"a": _cut("a")}, number, ids=2)
        run.date = day
        (tmp_path / ids_folder(day, number) / "address=a").mkdir(parents=True)
        runs.finished[number] = run
    id_store.forget(runs, TODAY, 7, {})

    assert id_store.kept(runs.files) == {1: ["a"], 2: ["a"], 3: ["a"]}
