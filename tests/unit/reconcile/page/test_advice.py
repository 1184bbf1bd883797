"""Advice from the resends seen, and a run as figures: pure."""

import io
import re
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from pyspark.sql import Row
from rich.console import Console

from reconcile.page import advice
from reconcile.page.report_data import MOMENTS_MAX, NAME_MAX, STEPS_MS, Figures, Lane, Moment, PastRun, Ring
from reconcile.page.report_data import step_ms as step_of
from reconcile.run.frames.distributions import STRAYS, without_strays
from reconcile.run.history.cut import Recorded
from reconcile.run.history.history import Run
from reconcile.run.measures.counts import Judgement
from reconcile.run.outcome import report_model
from reconcile.run.outcome.terminal_report import Judged, print_result, show
from reconcile.run.verdict import summary
from reconcile.run.verdict.summary import COUNTS
from ringfence_kafka.config.load import validate
from tests.support.reconcile import figures

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class Seen(NamedTuple):
    """Resends of an address in some runs."""

    resends: int = 0
    needed: int = 0
    p50: int = 0
    p99: int = 0
    largest: int = 0


SEEN = Seen(5, 4_096, 7, 29, 5_000)


def _ring(seen: Seen, *, span_ms: int = DAY_MS, capacity: int = 2_000, enough: int = 0) -> Ring:
    size = advice.recommended(seen.needed, capacity, span_ms)
    return Ring(
        capacity, size, 0.999, seen.resends, 0, 7, seen.p50, seen.p99, seen.largest, seen.needed, span_ms, enough=enough
    )  # fmt: skip


def test_nothing_seen_recommends_what_there_is() -> None:
    """A ring without any resend keeps its capacity; with some, the advice is what they need and headroom, even if less.

    Headroom is half of the need, rounded up to two digits, and the size is always valid.
    """
    sizes = {1: 2, 2: 3, 9: 14, 66: 99, 67: 110, 207: 320, 4_096: 6_200, 2**31 - 1: 2**31 - 1}
    assert {needed: advice.with_headroom(needed) for needed in sizes} == sizes
    shown = ("capacity", "needed", "recommended", "enough", "span_ms", "resend_distance_p99")
    nothing, less = _ring(Seen()), _ring(Seen(5, 30, 7, 29, 40))

    assert advice.document(nothing) == dict(zip(shown, (2_000, 0, 2_000, 0, DAY_MS, 0), strict=True))
    assert advice.document(less) == dict(zip(shown, (2_000, 30, 45, 0, DAY_MS, 29), strict=True))


@pytest.mark.parametrize("seen", [Seen(), SEEN])
def test_less_than_an_hour_recommends_nothing(seen: Seen) -> None:
    """An hour of records gives a size; a millisecond less gives none."""
    sizes = [_ring(seen, span_ms=span).recommended for span in (0, 3_599_999, 3_600_000)]

    assert sizes == [None, None, 6_200 if seen.resends else 2_000]


def test_only_a_ring_that_is_too_small_is_told() -> None:
    """The sentence has the need, the span and the headroom. A ring that is large enough with headroom has none.

    With id_min_age the advice is for id_cache_size_max. OVERRUN needs a larger id_cache_size, or a longer age.
    """
    (large,) = advice.sentences({"orders": _ring(SEEN, span_ms=26 * HOUR_MS)}, 1.0)
    few = {name: _ring(SEEN, span_ms=span) for name, span in (("orders", 9), ("payments", 180_000))}
    (none,) = advice.sentences(few, 1.0)

    assert large == (
        "orders: set id_cache_size = 6200 (it has 2000): 99.9 % of the resends needed 4,096 in 1.08 d, and "
        "50 % headroom is for traffic that was not seen"
    )
    assert none == (
        "orders, payments: no ring size is recommended: the records span 3 min, and less than an hour does "
        "not show how far apart the resends of a day are"
    )
    assert advice.sentences({"orders": _ring(SEEN, capacity=6_199)}, 1.0)
    assert advice.sentences({"orders": _ring(SEEN, capacity=6_200)}, 1.0) == []
    assert advice.sentences({"orders": _ring(Seen(), span_ms=0)}, 1.0) == []

    grows = replace(_ring(SEEN, capacity=3_000, enough=2_500), grows_from=2_000)
    (advised,) = advice.sentences({"orders": grows}, 0.001)
    (overrun,) = advice.sentences({"orders": replace(grows, overrun_share=0.5)}, 0.001)
    assert advised.startswith("orders: set id_cache_size_max = 6200 (it has 3000): 99.9 %")
    assert (
        "id_cache_size = 6200 would be enough (it has 2000), or a longer id_min_age: the resends" in overrun
    )


def test_overrun_above_its_limit() -> None:
    """The report on OVERRUN above its limit has the share, the limit, and the size that would be enough, if there is one."""
    for enough, span_ms, said in (
        (4_000, DAY_MS, "id_cache_size = 6200 would be enough (it has 2000): the resends needed 4,096 in 1 d, and 50 %"),
        (8_000, DAY_MS, "id_cache_size = 12000 would be enough (it has 2000): the resends needed 8,000 in 1 d, and 50 %"),
        (4_000, 180_000, "id_cache_size = 4000 would have been enough (it has 2000). That is no recommendation: the records span 3 min"),
        (2_000, DAY_MS, "no size would help, as id_cache_size = 2000 covers the measured distances. Look for id_max_age"),
        (0, DAY_MS, "no size would help"),
    ):  # fmt: skip
        ring = replace(_ring(SEEN, span_ms=span_ms, enough=enough), overrun_share=0.00104)
        (sentence,) = advice.sentences({"orders": ring}, 0.001)

        assert sentence.startswith(
            "orders: 0.104 % of the duplicates were accepted again (OVERRUN), and reconcile.overrun_max allows 0.1 %: "
            + said
        )
        assert "OVERRUN" not in "".join(advice.sentences({"orders": ring}, 0.00104))


def test_broken_promises_are_told() -> None:
    """The report names IDs that left too early since the last run, and where to look. A count that begins again counts from zero."""
    promising = {"name": "orders", "id_min_age": "1h", "id_cache_size_max": 30_000}
    address, plain = validate({"addresses": [promising, {"name": "plain"}]}).addresses

    def said(total: int, before: int | None) -> list[str]:
        lanes = {lane: Recorded({}, 9, 0, broken=total // 2) for lane in range(2)}
        cut: Any = SimpleNamespace(recorded=lanes)
        earlier = {} if before is None else {"promise": {"coverage_broken_total": before}}
        return list(advice.broken_promises({"orders": summary.promise_kept(address, cut, earlier)}))

    assert said(8, 8) == said(0, None) == []
    [told] = said(8, 6)
    assert told == (
        "orders: 2 IDs left their ring while younger than id_min_age = 1h: 'ringfence rings show "
        "orders', or the workers' log of that time, names an id_cache_size_max that is enough"
    )
    assert said(4, 6)[0].startswith("orders: 4 IDs left")
    assert summary.promise_kept(plain, cast("Any", None), {}) == {}


def test_what_is_torn_is_told() -> None:
    """The advice for torn transactions names the first envelope, its outcome and the remedy."""
    lost, torn = (
        replace(figures.finding(name, 0, Random(1)), partition=0, offset=at, detail="part 1 of 2 accepted")
        for at, name in ((7, "LOST"), (8, "TORN"))
    )
    (one,), (two,) = (advice.torn("orders", count, [lost, torn, torn]) for count in (1, 2))

    assert one.startswith("orders: 1 transaction is torn: orders/0/8, part 1 of 2 accepted. ")
    assert "send what is missing as a transaction of its own, under a new ID" in one
    assert two.startswith("orders: 2 transactions are torn, the first is orders/0/8, part 1 of 2 accepted. ")
    assert advice.torn("orders", 0, [lost]) == []


def test_steps() -> None:
    """A chart has few moments, however long the run and wherever it begins, and no shorter step would do."""
    for span in (0, 1, 199_999, 200_000, 3 * DAY_MS, 200 * DAY_MS, 201 * DAY_MS, 20_000 * DAY_MS):
        for first in (1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_000 // DAY_MS * DAY_MS):
            step, last = step_of(first, first + span), first + span
            shorter = [number for number in STEPS_MS if number < step]

            assert last // step - first // step < MOMENTS_MAX
            assert all(last // number - first // number >= MOMENTS_MAX for number in shorter)


NOON = 1_795_262_400_000
"""21 November 2026."""
YEAR_MS = 365 * DAY_MS


def test_strays() -> None:
    """Timestamps that are far off do not stretch a run."""
    for first, last, busy, kept in (
        (NOON // 1000, NOON + 4, (NOON, NOON + 3), (NOON - DAY_MS, NOON + 4)),  # seconds sent as milliseconds
        (NOON, 2**62, (NOON, NOON + DAY_MS), (NOON, NOON + 4 * DAY_MS)),
        # A busy hour in a quiet day, or an archive, does not leave out the rest.
        (NOON - 20 * HOUR_MS, NOON + 4 * HOUR_MS, (NOON, NOON + HOUR_MS), None),
        (NOON - 3 * YEAR_MS, NOON, (NOON - 2 * YEAR_MS, NOON - YEAR_MS), None),
    ):
        assert without_strays(first, last, *busy) == (kept or (first, last))


def test_bytes_as_text() -> None:
    """Bytes that are not UTF-8 or not visible are escaped, and a long text is cut. The rest is unchanged."""
    assert report_model.text(b"x" * NAME_MAX) == "x" * NAME_MAX
    assert report_model.text(b"x" * (NAME_MAX + 1)) == "x" * NAME_MAX + "…"
    assert report_model.text("grün-1".encode()) == "grün-1"
    assert report_model.text(b"\xff\x00a\n") == r"\xff\x00a\n"
    assert report_model.text("a\u202eb".encode()) == r"a\u202eb"


def _run(**held: dict[int, int]) -> Run:
    summary = {"addresses": {"a": {"anomalies": {"OVERRUN": 2}}}}
    return Run(1, None, "2026-11-20", "clean", summary=summary, held=held)


def _evidence(first_ms: int, last_ms: int, *runs: Run) -> Ring:
    settings = validate({"addresses": [{"name": "a"}]})
    times = {"b": (0, DAY_MS)} | ({"a": (first_ms, last_ms)} if last_ms else {})
    found = Judgement(anomalies={"a": {}}, times=times)
    return report_model.rings(settings, found, {"a": runs}, "2026-11-21")["a"]


def test_days_of_evidence() -> None:
    """The days of evidence count from the earliest record that a run has judged; they are at least one.

    The span reaches from the first record of all runs that count to the last one; runs of older versions have only
    their first.
    """

    def days(first: int, *runs: Run) -> int:
        return _evidence(first, first + 1, *runs).days

    old = _run()
    old.earliest = {"a": NOON - 9 * DAY_MS, "b": 0}
    assert [days(NOON), days(NOON - 7 * DAY_MS), days(2**62)] == [1, 8, 1]
    assert [days(NOON, _run()), days(NOON, old), days(NOON - 10 * DAY_MS, old)] == [2, 10, 11]

    before, old.earliest = _run(), {"a": 4 * HOUR_MS}
    before.summary["addresses"]["a"]["times"] = [5 * HOUR_MS, 7 * HOUR_MS]
    for last, expected in ((9 * HOUR_MS, [1, 4, 5]), (0, [0, 2, 0])):
        runs = [(), (before,), (before, old) if last else (old,)]
        assert [_evidence(8 * HOUR_MS, last, *some).span_ms / HOUR_MS for some in runs] == expected


def test_the_next_commands(capsys: pytest.CaptureFixture[str]) -> None:
    """The table ends with the advice. Places of results and commands to copy follow the verdict: how to go on.

    Names may contain anything, and each is one line. OVERRUN is red above its limit.
    """
    counts = {**dict.fromkeys(COUNTS, 0), "anomalies": {"OVERRUN": 3}, "overrun_share": 0.3}
    for overrun_max, alarming in ((0.3, False), (0.2, True)):
        console = Console(record=True, width=200, file=io.StringIO(), force_terminal=True)
        table = {"night": 1, "verdict": "clean", "overrun_max": overrun_max, "addresses": {"a": counts}}
        show(table, ["a: needs more"], console)
        text = console.export_text(styles=True)
        assert re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()[-2:] == ["a: needs more", "verdict: clean"]
        assert ("\x1b[1;31mOVERRUN 3" in text) is alarming
    long = "/somewhere/[bold]/" + "x" * 200
    addresses = {"a": {**dict.fromkeys(COUNTS, 0), "overrun_share": 0.0, "anomalies": {"LOST": 1, "GAP": 0}}}
    document = {"night": 7, "verdict": "anomalies", "overrun_max": 1.0, "addresses": addresses}
    print_result(Judged(document, [], f"{long}/report.html"), f"{long}/", ["--config", "a file.toml"])
    found = capsys.readouterr().out.splitlines()
    print_result(Judged({**document, "verdict": "clean", "addresses": {}}, [], ""), long, [])

    assert found[found.index("verdict: anomalies") + 1 :] == [
        f"each record: {long}/anomalies",
        f"report:      {long}/report.html",
        "show:        ringfence reconcile show --run 7 --config 'a file.toml'",
        "acknowledge: ringfence reconcile --acknowledge 7 --config 'a file.toml'",
    ]
    assert capsys.readouterr().out.splitlines()[-1] == "verdict: clean"


def test_the_last_runs() -> None:
    """The page gets the last thirty runs with this one; runs whose summaries are not kept are left out."""
    address = {"input": 10, "duplicates": 2, "anomalies": {"LOST": 1, "GAP": 2}}
    older = {"began": "2026-11-21T02:00:04+00:00", "addresses": {"a": address, "b": address}}
    finished = {
        n: Run(n, n - 1, "2026-11-20", "clean", summary={**older, "night": n, "verdict": "clean"})
        for n in range(1, 41)
    }
    finished[39] = Run(39, 38, "2026-11-20", "clean")
    runs = report_model.past_runs(finished, {**older, "night": 40, "verdict": "anomalies", "seconds": 7.5})

    assert [run.number for run in runs] == [*range(10, 39), 40]
    assert runs[-1] == PastRun(40, "2026-11-21T02:00:04+00:00", "anomalies", 20, 4, 6, 7.5)
    assert (runs[-1].duplicates_share, runs[0].verdict, runs[0].seconds) == (0.2, "clean", None)


def _row(of: str, **columns: Any) -> Row:
    return Row(**{"address": 0, "of": of, **dict.fromkeys(("at", "a", "b", "c", "d", "name")), **columns})


def test_figures() -> None:
    """The page gets all counts and collected rows; earlier runs count too."""
    settings = validate({"addresses": [{"name": "a", "id_cache_size": 4, "partitions": 2}]})
    found = Judgement(
        counts={"a": {"input": 9}},
        anomalies={"a": {"OVERRUN": 1}},
        lanes={"a": {0: {"input": 9, "accepted": 6, "dropped": 3, "waiting": 1, "backlog": 4}}},
        times={"a": (DAY_MS, DAY_MS + HOUR_MS)},
        numbers=[
            _row("ring", at=5, a=8, b=2, c=5, d=6), _row("enough", at=6), _row("moment", at=20, a=1, b=1, c=-1),
            _row("moment", at=10, a=8, b=5, c=3), _row("moment", at=STRAYS, a=2, b=2, c=0),
            _row("orphans", at=0, a=1), _row("lane", at=1, a=8, b=5, c=6),
            _row("largest", at=1, a=9, name=b"\xfe"), _row("groups", at=16, a=1, b=9),
        ],
    )  # fmt: skip
    rings = report_model.rings(settings, found, {"a": [_run()]}, "2026-11-21")
    document = {
        "night": 2, "from_night": 1, "began": "2026-11-21T02:00:04+00:00", "verdict": "anomalies", "overrun_max": 0.001,
        "addresses": {"a": {
            **dict.fromkeys(("input", "accepted", "duplicates", "quarantined", "unchecked", "forwarded", "in_flight"), 0),
            "anomalies": {"OVERRUN": 1}, "ring": advice.document(rings["a"]), "overrun_share": 0.25,
        }},
    }  # fmt: skip

    made = report_model.figures(settings, document, found, rings, {"a": {0: 99}}, {"a": range(2)})
    (address,) = made.addresses

    ring = address.ring
    assert (ring.needed, ring.recommended, ring.enough, ring.span_ms, ring.overruns) == (5, 8, 6, HOUR_MS, 3)
    assert (ring.overrun_share, ring.overrun) == (0.25, True)
    assert made.advice == advice.sentences({"a": ring}, 0.001)
    assert address.lanes == [Lane(0, 9, 6, 2, 5, 4), Lane(1, 0, 0, 0, 0, 0, 8, 5, 6)]
    assert address.moments == [Moment(10, 8, 5, 3), Moment(20, 1, 1, 0)]
    assert address.strays == 2
    assert [group.name for group in address.groups_largest] == [r"\xfe"]
    # A ring fills up from run to run, and starts again if it was emptied or the topic is another one.
    now = Judgement(accepted={"a": {0: 5, 1: 6}}, emptied={"a": {1: 2}})
    base = _run(a={0: 10, 1: 10, 2: 10})
    assert report_model.held(base, now, {"a": False}) == {"a": {0: 15, 1: 2, 2: 10}}
    assert report_model.held(base, now, {"a": True}) == {"a": {0: 5, 1: 2}}
    assert report_model.held(None, now, {"a": False}) == {"a": {0: 5, 1: 2}}
    assert made.subtitle == "2026-11-21 02:00 UTC, since run 1"
    assert Figures.from_json(made.to_json()).to_json() == made.to_json()
