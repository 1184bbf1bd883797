"""State between runs, with other configurations and topics: pure."""

from pathlib import Path
from typing import Any

import pytest

from reconcile import job
from reconcile.anomalies.names import Anomaly
from reconcile.cluster.admin import TopicFacts
from reconcile.cluster.survey import Survey
from reconcile.run.frames.scope import begin_run
from reconcile.run.history.cut import AddressCut, Lost, Position, Span, TopicCut, journal_lost, positions
from reconcile.run.history.history import Run, RunHistory
from reconcile.run.history.layout import ids_folder
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

RINGS = Rings.from_settings(0, 1)


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


def _handed_on(settings: Settings, base: Run | None, cuts: dict[str, AddressCut], number: int) -> Run:
    found = Judgement(
        accepted={cut: {0: 4} for cut in cuts}, emptied={cut: {} for cut in cuts},
        times=dict.fromkeys(cuts, (1, 2)), largest=dict.fromkeys(cuts, 5),
    )  # fmt: skip
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
    assert second.known == second.held == {"a": {0: 8}, "b": {0: 4}}
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
        rules = {address.name: kept(address) for address in settings.addresses}
        return runs.again(positions(cuts), rules) is not None

    assert again(settings, **cuts)
    assert not again(_settings("a"), a=cuts["a"])
    assert not again(_settings("a", "b", id_max_age=9), **cuts)
    assert not again(settings, a=_cut("a", 11), b=cuts["b"])


@pytest.mark.parametrize("topic", ["input", "accepted"])
def test_a_gap_leaves_ids_unknown(topic: str) -> None:
    """IDs stay unknown after a gap until the rings have turned over. A duplicate may refer to a record that nobody has seen."""
    settings = _settings("a")
    whole = _handed_on(settings, None, {"a": _cut("a")}, 1)
    cut = _cut("a")
    cut.topics()[topic].lost.append(Lost("t", 0, 10, 12, "gone"))
    gap = _handed_on(settings, whole, {"a": cut}, 2)
    after = _handed_on(settings, gap, {"a": _cut("a")}, 3)

    assert carry_over.complete(settings, whole, {"a": cut}) == {"a": False}
    assert [run.complete["a"] for run in (whole, gap, after)] == [True, False, True]
    assert [run.known["a"][0] for run in (whole, gap, after)] == [4, 4, 8]


def test_what_a_run_reads(tmp_path: Path) -> None:
    """A run reads only the records since the last run, even if consumers are behind, and the whole journal.

    Records that the last run has judged may be deleted: the next run is empty and reports no GAP.
    """
    settings = _settings("a")
    runs = RunHistory(LocalFiles(str(tmp_path)))
    first = _survey(1_000_000, journal={0: (2, 5)})
    assert job.Ready(runs, first).records(settings) == 4_000_000 + 3

    runs.finished[1] = _handed_on(settings, *begin_run(settings, runs, first), 1)
    second = job.Ready(runs, _survey(1_000_002, 1_000_001, journal={0: (2, 5)}))
    assert second.records(settings) == 4 * 2 + 3
    for start, after in ((0, None), (1_000_000, 1)):
        base, cuts = begin_run(settings, runs, _survey(1_000_000, start=start))
        assert not any(cut.lost for cut in cuts.values())
        assert (base.number if base else None, cuts["a"].input.spans[0].begin) == (after, start)

    runs.finished[1].leaves = {f"{ids_folder(TODAY, 1)}/address=a": 1}
    with pytest.raises(PrerequisiteError, match="has 0 of the 1 Parquet files"):
        second.records(settings)


def test_the_journal() -> None:
    """Lost events are reported once, for all addresses."""
    for last, lost, why in (
        (None, [(0, 4)], ""),
        (Position("j", (1,), (3,)), [(1, 4)], ""),
        (Position("j", (4,), (5,)), [], ""),
        (Position("old", (4,), (5,)), [(5, 5)], "it was deleted and created again"),
    ):
        gone = journal_lost("journal", Position("j", (4,), (9,)), last)
        cut = _cut("a")
        with_gap = AddressCut(cut.input, cut.forward, cut.accepted, cut.quarantine, None, (0,), gone)
        found = doubts(_settings("a").addresses, {"a": with_gap}, None, [RINGS])

        assert [(item.begin, item.end) for item in gone] == lost
        assert all(item.why.startswith(why) for item in gone)
        assert with_gap.lost == gone
        doubted = [(doubt.address, doubt.anomalies) for doubt in found]
        assert doubted == [(0, frozenset({Anomaly.FORGOTTEN}))] * len(lost)


def test_events_of_an_input_that_was_deleted() -> None:
    """Journal events from before a recreated input was seen do not concern it, in any later run."""
    settings, cuts = _settings("a"), {"a": _cut("a")}
    first = _handed_on(settings, None, {"a": _cut("a")}, 1)
    cuts["a"].input.topic_id = "new"
    second = _handed_on(settings, first, cuts, 2)
    third = _handed_on(settings, second, cuts, 3)

    assert [run.events_from for run in (first, second, third)] == [{}, {"a": 7}, {"a": 7}]
