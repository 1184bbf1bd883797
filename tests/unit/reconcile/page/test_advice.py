"""Advice from the resends seen, and a run as figures: pure."""

import io
from typing import Any

import pytest
from pyspark.sql import Row
from rich.console import Console

from reconcile import job
from reconcile.page import advice, pages
from reconcile.page.advice import Seen
from reconcile.page.report_data import (
    MOMENTS_MAX,
    NAME_MAX,
    STEPS_MS,
    Figures,
    Finding,
    Lane,
    Moment,
    step_ms,
)
from reconcile.run.frames.distributions import STRAYS, without_strays
from reconcile.run.history.history import Run
from reconcile.run.measures.counts import Judgement
from reconcile.run.outcome import report_model
from reconcile.run.outcome.terminal_report import show
from reconcile.run.verdict.summary import COUNTS
from ringfence_kafka.config.load import validate

DAY_MS = 86_400_000


def test_nothing_seen_recommends_what_there_is() -> None:
    """A ring without any resend keeps its capacity; with some, the advice is what they need, even if less."""
    nothing = advice.ring(2_000, 0.999, Seen(), overruns=0, days=7)
    less = advice.ring(2_000, 0.999, Seen(5, 30, 7, 29, 40), overruns=0, days=7)

    assert advice.document(nothing) == {"capacity": 2_000, "recommended": 2_000, "resend_distance_p99": 0}
    assert advice.document(less) == {"capacity": 2_000, "recommended": 30, "resend_distance_p99": 29}


def test_only_a_ring_that_is_too_small_is_told() -> None:
    rings = {"orders": (2_000, 4_096), "enough": (2_000, 2_000), "less": (2_000, 1)}
    addresses = {
        name: {"ring": {"capacity": capacity, "recommended": recommended}}
        for name, (capacity, recommended) in rings.items()
    }

    assert advice.sentences(addresses, 0.999) == [
        "orders: 99.9 % of resends need id_cache_size = 4096, it has 2000"
    ]
    assert advice.sentences(addresses, 1.0)[0].startswith("orders: 100 % of resends")


def test_what_is_torn_is_told() -> None:
    """The advice for torn transactions names the first envelope, its outcome and the remedy."""
    empty: dict[str, Any] = dict.fromkeys(
        ("out_topic", "out_partition", "out_offset", "other_partition", "other_offset", "id", "group")
    )
    lost, torn = (
        Finding(anomaly=name, topic="orders", partition=0, offset=at, detail="part 1 of 2 accepted", **empty)
        for at, name in ((7, "LOST"), (8, "TORN"))
    )
    (one,), (two,) = (advice.torn("orders", count, [lost, torn, torn]) for count in (1, 2))

    assert one.startswith("orders: 1 transaction is torn: orders/0/8, part 1 of 2 accepted. ")
    assert "send what is missing as a transaction of its own, under a new ID" in one
    assert two.startswith("orders: 2 transactions are torn, the first is orders/0/8, part 1 of 2 accepted. ")
    assert advice.torn("orders", 0, [lost]) == []


def test_the_table_ends_with_the_advice() -> None:
    counts = {**dict.fromkeys(COUNTS, 0), "anomalies": {"OVERRUN": 3}}
    console = Console(record=True, width=200, file=io.StringIO())
    show({"night": 1, "verdict": "clean", "addresses": {"a": counts}}, ["a: needs more"], console)

    assert console.export_text().splitlines()[-2:] == ["a: needs more", "verdict: clean"]


@pytest.mark.parametrize(
    "span", [0, 1, 199_999, 200_000, 3 * DAY_MS, 200 * DAY_MS, 201 * DAY_MS, 20_000 * DAY_MS]
)
def test_steps(span: int) -> None:
    """A chart has few moments, however long the run and wherever it begins, and no shorter step would do."""
    for first in (1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_000 // DAY_MS * DAY_MS):
        step, last = step_ms(first, first + span), first + span
        shorter = [number for number in STEPS_MS if number < step]

        assert last // step - first // step < MOMENTS_MAX
        assert all(last // number - first // number >= MOMENTS_MAX for number in shorter)


def test_strays() -> None:
    """Seconds sent as milliseconds, or what is far in the future, do not stretch a run.

    A busy hour in a quiet day, or an archive, does not leave out the rest.
    """
    noon, hour = 1_795_262_400_000, 3_600_000

    assert without_strays(1_795_262, noon + 4, noon, noon + 3) == (noon - DAY_MS, noon + 4)
    assert without_strays(noon, 2**62, noon, noon + DAY_MS) == (noon, noon + 4 * DAY_MS)
    assert without_strays(noon - 20 * hour, noon + 4 * hour, noon, noon + hour) == (
        noon - 20 * hour,
        noon + 4 * hour,
    )
    year = 365 * DAY_MS
    assert without_strays(noon - 3 * year, noon, noon - 2 * year, noon - year) == (noon - 3 * year, noon)


def test_bytes_as_text() -> None:
    """Bytes that are not UTF-8 or not visible are escaped, and a long text is cut.

    The rest is unchanged.
    """
    assert report_model.text(b"x" * NAME_MAX) == "x" * NAME_MAX
    assert report_model.text(b"x" * (NAME_MAX + 1)) == "x" * NAME_MAX + "…"
    assert report_model.text("grün-1".encode()) == "grün-1"
    assert report_model.text(b"\xff\x00a\n") == r"\xff\x00a\n"
    assert report_model.text("a\u202eb".encode()) == r"a\u202eb"


def _run(**held: dict[int, int]) -> Run:
    summary = {"addresses": {"a": {"anomalies": {"OVERRUN": 2}}}}
    return Run(1, None, "2026-11-20", "clean", summary=summary, held=held)


def test_held() -> None:
    """A ring fills up from run to run, and starts again if it was emptied or the topic is another one."""
    found = Judgement(accepted={"a": {0: 5, 1: 6}}, emptied={"a": {1: 2}})
    base = _run(a={0: 10, 1: 10, 2: 10})

    assert report_model.held(base, found, {"a": False}) == {"a": {0: 15, 1: 2, 2: 10}}
    assert report_model.held(base, found, {"a": True}) == {"a": {0: 5, 1: 2}}
    assert report_model.held(None, found, {"a": False}) == {"a": {0: 5, 1: 2}}


def test_days_of_evidence() -> None:
    """The days of evidence count from the earliest record that a run has judged; they are at least one."""
    settings = validate({"addresses": [{"name": "a"}]})
    noon = 1_795_262_400_000  # 21 November 2026

    def days(first: int, *runs: Run) -> int:
        found = Judgement(anomalies={"a": {}}, times={"a": (first, first + 1)})
        return report_model.rings(settings, found, {"a": runs}, "2026-11-21")["a"].days

    old = _run()
    old.earliest = {"a": noon - 9 * DAY_MS, "b": 0}
    assert [days(noon), days(noon - 7 * DAY_MS), days(2**62)] == [1, 8, 1]
    assert [days(noon, _run()), days(noon, old), days(noon - 10 * DAY_MS, old)] == [2, 10, 11]


def test_results_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The output names the folder with each record and the page, if there is one, below the verdict.

    The folder's name may contain anything.
    """
    long = "/somewhere/[bold]/" + "x" * 200
    document = {"night": 1, "verdict": "anomalies", "addresses": {}}
    job.tell(document, [], job.Options(out=f"{long}/"), drawn=True)
    with_page = capsys.readouterr().out.splitlines()
    job.tell({**document, "verdict": "clean"}, [], job.Options(out=long), drawn=False)

    assert with_page[-2:] == [f"each record is named in {long}/anomalies", f"the page: {long}/report.html"]
    assert capsys.readouterr().out.splitlines()[-1] == "verdict: clean"


def _row(of: str, **columns: Any) -> Row:
    return Row(**{"address": 0, "of": of, **dict.fromkeys(("at", "a", "b", "c", "d", "name")), **columns})


def test_figures() -> None:
    """The page gets all counts and collected rows; earlier runs count too."""
    settings = validate({"addresses": [{"name": "a", "id_cache_size": 4, "partitions": 2}]})
    found = Judgement(
        counts={"a": {"input": 9}},
        anomalies={"a": {"OVERRUN": 1}},
        lanes={"a": {0: {"input": 9, "accepted": 6, "dropped": 3, "waiting": 1, "backlog": 4}}},
        numbers=[
            _row("ring", at=5, a=8, b=2, c=5, d=6), _row("moment", at=20, a=1, b=1, c=-1),
            _row("moment", at=10, a=8, b=5, c=3), _row("moment", at=STRAYS, a=2, b=2, c=0),
            _row("orphans", at=0, a=1), _row("lane", at=1, a=8, b=5, c=6),
            _row("largest", at=1, a=9, name=b"\xfe"), _row("groups", at=16, a=1, b=9),
        ],
    )  # fmt: skip
    rings = report_model.rings(settings, found, {"a": [_run()]}, "2026-11-21")
    document = {
        "night": 2, "from_night": 1, "began": "2026-11-21T02:00:04+00:00", "verdict": "clean",
        "addresses": {"a": {
            **dict.fromkeys(("input", "accepted", "duplicates", "quarantined", "unchecked", "forwarded", "in_flight"), 0),
            "anomalies": {"OVERRUN": 1}, "ring": advice.document(rings["a"]),
        }},
    }  # fmt: skip

    made = report_model.figures(settings, document, found, rings, {"a": {0: 99}}, {"a": range(2)})
    (address,) = made.addresses

    assert (address.ring.recommended, address.ring.overruns, address.ring.days) == (5, 3, 2)
    assert address.lanes == [Lane(0, 9, 6, 2, 5, 4), Lane(1, 0, 0, 0, 0, 0, 8, 5, 6)]
    assert address.moments == [Moment(10, 8, 5, 3), Moment(20, 1, 1, 0)]
    assert address.strays == 2
    assert [group.name for group in address.groups_largest] == [r"\xfe"]
    assert made.subtitle == "2026-11-21 02:00 UTC, since run 1"
    assert made.advice == ["a: 99.9 % of resends need id_cache_size = 5, it has 4"]
    assert Figures.from_json(made.to_json()).to_json() == made.to_json()


def test_no_page_is_no_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A driver that has nothing to draw with says so in one line."""
    monkeypatch.setitem(__import__("sys").modules, "reconcile.page.document", None)

    assert pages.written(Figures("t", "s", "clean", "h:1", [])) is None
    assert capsys.readouterr().err.startswith("no report.html: ")
