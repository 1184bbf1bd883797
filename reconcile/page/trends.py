"""Trends over the last runs: one bar for each run, as inline SVG in the page's colours. Pure."""

from collections.abc import Callable, Sequence
from html import escape
from typing import Final, NamedTuple

from markupsafe import Markup

from reconcile.page import formatting
from reconcile.page.report_data import RUNS_MAX, PastRun

_SLOT, _HEIGHT = 10, 40
"""Width of one run's slot and height of the bars, in units. Drawings are stretched, so they have no text."""
_BAR: Final = 8
_LEAST: Final = 0.75
"""Minimum height of a value that is not 0."""


class Verdict(NamedTuple):
    """Appearance of a verdict."""

    sign: str
    word: str
    kind: str
    says: str


VERDICTS: Final = {
    "clean": Verdict("✓", "clean", "good", "Inputs and outputs agree."),
    "anomalies": Verdict("✕", "anomalies", "bad", "Some records differ between inputs and outputs."),
    "gap": Verdict("?", "gap", "unknown", "Evidence was deleted before it was read, so the result is unknown."),
    "": Verdict("i", "audit", "neutral", "Read only: nothing was written to Kafka, and no group was joined."),
}  # fmt: skip


class Measure(NamedTuple):
    """One measure over all runs."""

    name: str
    last: str
    says: str
    drawing: Markup


class Row(NamedTuple):
    """One run, as text."""

    number: int
    began: str
    verdict: Verdict
    values: Sequence[str]


class Trends(NamedTuple):
    """Runs as text and drawings; empty with fewer than two runs."""

    runs: Sequence[Row]
    verdicts: Sequence[Verdict]
    """Verdicts that occur."""
    measures: Sequence[Measure]


_MEASURES: Final[Sequence[tuple[str, Callable[[PastRun], float | None], Callable[[float], str]]]] = (
    ("messages", lambda run: run.messages, "{:,}".format),
    ("duplicates", lambda run: run.duplicates_share, formatting.about),
    ("anomalies", lambda run: run.anomalies, "{:,}".format),
    ("duration", lambda run: run.seconds, lambda seconds: formatting.span(seconds * 1000)),
)


def drawn(runs: Sequence[PastRun]) -> Trends:
    """Draw the measures of the last runs; empty if there is only one run."""
    if len(runs) < 2:
        return Trends((), (), ())
    rows = [
        Row(
            run.number,
            run.began[:16].replace("T", " "),
            verdict_of(run.verdict),
            [_text(value(run), text) for _, value, text in _MEASURES],
        )
        for run in runs
    ]
    verdicts = [verdict for verdict in VERDICTS.values() if any(row.verdict == verdict for row in rows)]
    measures = [_measure(runs, rows, at) for at in range(len(_MEASURES))]
    return Trends(list(reversed(rows)), verdicts, measures)


def verdict_of(name: str) -> Verdict:
    """Return the appearance of a verdict; empty = an audit."""
    return VERDICTS.get(name, Verdict("?", name, "unknown", ""))


def _text(value: float | None, text: Callable[[float], str]) -> str:
    return "\N{EN DASH}" if value is None else text(value)


def _measure(runs: Sequence[PastRun], rows: Sequence[Row], at: int) -> Measure:
    name, value, text = _MEASURES[at]
    values = [value(run) for run in runs]
    known = [item for item in values if item is not None]
    says = f"From {text(min(known))} to {text(max(known))}." if known else "Not measured."
    top = max(known, default=0) or 1
    first = RUNS_MAX - len(runs)
    bars = []
    for slot, (row, item) in enumerate(zip(rows, values, strict=True), first):
        height = max(item / top * _HEIGHT, _LEAST) if item else 0
        title = f"run {row.number}, {row.began}, {row.verdict.word}: {row.values[at]}"
        bars.append(
            f"<g><title>{escape(formatting.visible(title))}</title>"
            f'<path class="hover" d="M{slot * _SLOT} 0h{_SLOT}v{_HEIGHT}h-{_SLOT}z"/>'
            f'<rect class="{row.verdict.kind}" x="{slot * _SLOT + 1}" y="{_HEIGHT - height:.2f}" width="{_BAR}" height="{height:.2f}"/></g>'
        )
    label = escape(f"{name} of the last {len(runs)} runs. {says} This run: {rows[-1].values[at]}.")
    drawing = (
        f'<svg class="trend" role="img" aria-label="{label}" viewBox="0 0 {RUNS_MAX * _SLOT} {_HEIGHT}" preserveAspectRatio="none">'
        f"{''.join(bars)}</svg>"
    )
    return Measure(name, rows[-1].values[at], says, Markup(drawing))  # noqa: S704
