"""Drawings of the page by matplotlib, as embedded images.

Only the object API is used, in a context that restores all settings. Equal numbers give equal bytes.
"""

import base64
import contextlib
import io
import logging
import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import product
from typing import Any, Final, NamedTuple

from reconcile.page import formatting


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Suppress matplotlib's messages about folders and fonts."""
    logger = logging.getLogger("matplotlib")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


with _silent():
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator

_LEFT, _RIGHT = 46, 24
_PER_INCH: Final = 72
_LETTER: Final = 7.8  # width of a letter in a label, in units; exceeds that of most fonts
INK, SOFT, ADVISED, _LINE = "#1c2024", "#565d66", "#0b6b5d", "#d9d9d4"
_AREAS: Final = {
    "accepted": "#a9cdf0", "share": "#a9cdf0", "duplicates": "#f3b57c", "groups": "#9dd3c8",
}  # fmt: skip
_EDGE: Final = "#0b5cad"
_MARKS: Final[dict[str, dict[str, Any]]] = {
    "capacity": {"color": INK, "linewidth": 1.5},
    "recommended": {"color": ADVISED, "linewidth": 1.75, "linestyle": (0, (3, 1.7))},
    "half": {"color": SOFT, "linewidth": 1, "linestyle": (0, (2, 3))},
    "most": {"color": SOFT, "linewidth": 1, "linestyle": (0, (2, 3))},
}
_SETTINGS: Final[Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "ringfence", "font.sans-serif": ["DejaVu Sans"], "text.color": INK,
    "xtick.labelcolor": SOFT, "ytick.labelcolor": SOFT, "xtick.labelsize": "medium", "ytick.labelsize": "medium",
    "axes.edgecolor": SOFT, "axes.linewidth": 1, "grid.color": _LINE, "grid.linewidth": 1, "grid.linestyle": (0, (1, 3)),
    "axes.axisbelow": True, "path.simplify": False, "text.parse_math": False, "axes.unicode_minus": False,
}  # fmt: skip
"""Settings of matplotlib: text stays text (``fonttype``), names in a drawing are reproducible (``hashsalt``),
and the font comes with matplotlib, so fonts of the machine do not change the layout.
"""
_SPACE: Final = 1.04


class Mark(NamedTuple):
    """Value marked by a vertical line."""

    name: str
    at: float
    text: str


class Drawing:
    """Figure, measured in units of its view box from the top left."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = width, height
        self._figure = Figure(figsize=(width / _PER_INCH, height / _PER_INCH), dpi=_PER_INCH)
        self._figure.patch.set_visible(False)

    def axes(self, *, top: int, height: int) -> Any:
        """Return a frameless area with a base line."""
        width = self._width - _LEFT - _RIGHT
        made = self._figure.add_axes(
            (
                _LEFT / self._width,
                1 - (top + height) / self._height,
                width / self._width,
                height / self._height,
            )
        )
        made.patch.set_visible(False)
        for name, spine in made.spines.items():
            spine.set_visible(name == "bottom")
        made.tick_params(bottom=False, left=False, which="both")
        made.tick_params(axis="x", pad=8)
        return made

    def filled(self, axes: Any, name: str, values: Sequence[float], edges: Sequence[float]) -> None:
        """Draw a filled area of steps."""
        if any(values):
            axes.stairs(values, edges, fill=True, facecolor=_AREAS[name], gid=name)

    def outlined(self, axes: Any, name: str, values: Sequence[float], edges: Sequence[float]) -> None:
        """Draw the upper edge of an area."""
        axes.stairs(values, edges, baseline=None, color=_EDGE, linewidth=1.5, gid=name)

    def counted(self, axes: Any, name: str) -> None:
        """Set a named scale of whole numbers from 0, with few grid lines."""
        top = max(axes.dataLim.y1, 1) if math.isfinite(axes.dataLim.y1) else 1
        axes.set_ylim(0, top * 1.04)
        tall = axes.get_position().height * self._height > 60
        axes.yaxis.set_major_locator(MaxNLocator(4 if tall else 2, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: formatting.compact(value)))
        axes.yaxis.grid(visible=True)
        axes.annotate(name, (0, 1), (0, 8), xycoords="axes fraction", textcoords="offset points")

    def cumulative(self, axes: Any, shares: tuple[list[float], list[float]], low: float, high: float) -> None:
        """Draw the cumulative share up to each value, on a logarithmic scale."""
        xs, ys = shares
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xlim(low, high)
        axes.fill_between(xs, ys, 0.0, facecolor=_AREAS["share"])
        axes.plot(xs, ys, color=_EDGE, linewidth=1.5)
        axes.set_ylim(0, 1)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
        axes.yaxis.grid(visible=True)

    def label(self, axes: Any, text: str) -> None:
        """Write the name of the scale below the area."""
        axes.annotate(
            text, (0.5, 0), (0, -38), xycoords="axes fraction", textcoords="offset points", ha="center"
        )

    def marks(self, axes: Any, marks: Sequence[Mark]) -> None:
        """Draw one or two vertical lines, with their labels above in separate rows."""
        if not marks:
            return
        left, right = axes.get_xlim()
        area = axes.get_position()
        width, height = area.width * self._width, area.height * self._height
        shares = [math.log(mark.at / left) / math.log(right / left) for mark in marks]
        widths = [len(mark.text) * _LETTER / width for mark in marks]
        for mark, (row, side) in zip(marks, _arranged(shares, widths), strict=True):
            style = _MARKS[mark.name]
            top = 1 + (30 - 16 * row) / height
            axes.axvline(mark.at, ymax=top, clip_on=False, gid=mark.name, **style)
            axes.annotate(
                mark.text, (mark.at, 1), (5 * side, 22 - 16 * row), xycoords=("data", "axes fraction"),
                textcoords="offset points", ha="left" if side > 0 else "right", color=style["color"],
                weight="normal" if style["color"] == SOFT else "semibold", gid=f"{mark.name}-label",
            )  # fmt: skip

    def image(self, kind: str, title: str, description: str) -> str:
        """Return an ``img`` element with a description; ``kind`` gives classes of the style sheet."""
        written = io.BytesIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        self._figure.savefig(written, format="svg", metadata=nothing)
        data = base64.b64encode(written.getvalue()).decode()
        alt = escape(formatting.visible(f"{title}. {description}"))
        return (
            f'<img class="plot {kind}" alt="{alt}" width="{self._width}" height="{self._height}" '
            f'src="data:image/svg+xml;base64,{data}">'
        )


def _arranged(shares: Sequence[float], widths: Sequence[float]) -> list[tuple[int, int]]:
    """Return row (0 = upper) and side (1 = right) of each label, inside the drawing and off the other line.

    A line ends at the row of its label, so only the label in the lower row can meet the other line.
    """
    rows = [(0,)] if len(shares) == 1 else [(1, 0), (0, 1)]

    def badness(choice: tuple[tuple[int, ...], tuple[int, ...]]) -> float:
        found = 0.0
        for at, width, row, side in zip(shares, widths, *choice, strict=True):
            begin, end = (at, at + width) if side > 0 else (at - width, at)
            found += max(0.0, -0.1 - begin) + max(0.0, end - _SPACE)
            found += sum(row == 1 and begin < other < end for other in shares)
        return found

    choices = [(row, side) for row in rows for side in product((1, -1), repeat=len(shares))]
    return list(zip(*min(choices, key=badness), strict=True))


@contextlib.contextmanager
def drawing(width: int, height: int, letters: float = 11.5) -> Iterator[Drawing]:
    """Yield a new drawing with its own settings. ``letters``: font size in units."""
    with _silent(), mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        mpl.rcParams["font.size"] = letters
        yield Drawing(width, height)
