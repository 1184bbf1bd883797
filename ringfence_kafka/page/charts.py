"""Charts as inline SVG for pages, and as block characters for a terminal. Pure."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import groupby, pairwise
from typing import Final

from ringfence_kafka.page.history import Span, Values

Format = Callable[[float], str]
"""Returns a value in readable form."""

_SPARK_HEIGHT: Final = 20
_CHART_HEIGHT: Final = 120
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_TIMES: Final = {3_600: ("1 hour ago", "30 minutes ago"), 86_400: ("1 day ago", "12 hours ago")}


class Html(str):
    """Text that is HTML already: a template does not escape it."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def spark(values: Values, name: str, shown: Format) -> Html:
    """Return a small line chart of one figure; empty without values."""
    top = max(_known(values), default=None)
    if top is None:
        return Html()
    path = _path(values, top, _SPARK_HEIGHT)
    return Html(
        f'<svg class="spark" viewBox="-1 -1 {len(values) + 1} {_SPARK_HEIGHT + 2}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(_said(values, name, shown))}"><path d="{path}"/></svg>'
    )


def chart(title: str, span: Span, lines: Mapping[str, Values], shown: Format) -> Html:
    """Return a large chart with a line for each name. Without values it says so."""
    lines = {name: values for name, values in lines.items() if _known(values)}
    head = f"<figcaption><b>{escape(title)}</b>"
    if not lines:
        return Html(f'<figure class="chart">{head}</figcaption><p class="soft">no figures yet</p></figure>')
    top = max(max(_known(values)) for values in lines.values())
    legend = "".join(
        f'<span class="key line-{number}">{escape(name if len(lines) > 1 else "last")} {escape(shown(_known(values)[-1]))}</span>'
        for number, (name, values) in enumerate(lines.items())
    )
    grid = "".join(f"M0 {_CHART_HEIGHT * quarter // 4}H{span.slots - 1}" for quarter in range(5))
    paths = "".join(
        f'<path class="line-{number}" d="{_path(values, top, _CHART_HEIGHT)}"/>'
        for number, values in enumerate(lines.values())
    )
    said = "; ".join(_said(values, name, shown) for name, values in lines.items())
    since = "".join(f"<span>{text}</span>" for text in (*_TIMES[span.slots * span.slot_s], "now"))
    return Html(
        f'<figure class="chart">{head} {legend}</figcaption><div class="top soft">{escape(shown(top))}</div>'
        f'<svg viewBox="0 -1 {span.slots - 1} {_CHART_HEIGHT + 2}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(f"{title}: {said}")}"><path class="grid" d="{grid}"/>{paths}</svg>'
        f'<div class="axis soft">{since}</div></figure>'
    )


def blocks(values: Values, width: int) -> str:
    """Return a figure as block characters for a terminal, the newest on the right; empty without values."""
    if not _known(values):
        return ""
    step = max(1, len(values) // width)
    newest = values[-(len(values) // step) * step :]
    slots = [_known(newest[at : at + step]) for at in range(0, len(newest), step)][-width:]
    top = max(max(slot, default=0.0) for slot in slots)
    return "".join(
        " " if not slot else _BLOCKS[int(max(slot) / top * (len(_BLOCKS) - 1)) if top > 0 else 0]
        for slot in slots
    )


def _known(values: Values) -> list[float]:
    return [value for value in values if value is not None]


def _said(values: Values, name: str, shown: Format) -> str:
    known = _known(values)
    return f"{name}: last {shown(known[-1])}, least {shown(min(known))}, most {shown(max(known))}"


def _path(values: Values, top: float, height: int) -> str:
    """Return a line with a gap at each unknown value. Inner points of level stretches are left out."""
    ys = [None if value is None else round(height * (1 - max(0.0, value) / top) if top > 0 else height) for value in values]  # fmt: skip
    found, at = [], 0
    for unknown, run in groupby(ys, lambda y: y is None):
        level = list(run)
        if not unknown:
            found.append(_run(at, [y for y in level if y is not None]))
        at += len(level)
    return "".join(found)


def _run(at: int, ys: Sequence[int]) -> str:
    """Return a stretch that begins at ``at``. A single point is a line of length 0, which round line ends make visible."""
    kept = [
        place
        for place, y in enumerate(ys)
        if place in {0, len(ys) - 1} or not ys[place - 1] == y == ys[place + 1]
    ]
    moves = [f"{right - left} {ys[right] - ys[left]}" for left, right in pairwise(kept)]
    return f"M{at} {ys[0]}" + (f"l{' '.join(moves)}".replace(" -", "-") if moves else "h0")
