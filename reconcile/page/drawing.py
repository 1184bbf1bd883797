"""How the page draws: matplotlib places everything, colours and letters are the page's (:mod:`reconcile.page.svg`).

Only the object API, within a context that puts every setting back: whoever calls this may use matplotlib himself. The same
numbers give the same bytes.
"""

import contextlib
import io
import logging
import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

from reconcile.page import svg, wording


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Matplotlib's remarks, on folders that it may not write to and on fonts, do not reach who waits for a page."""
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
_LETTER: Final = 7.8
"""Width of one in a label, in units, where it is largest: on a phone."""
_SPACE: Final = 1.04


class Mark(NamedTuple):
    """A value that a line stands for."""

    name: str
    at: float
    text: str


class Drawing:
    """One figure, measured in the units of its view box from the top left."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = width, height
        self._figure = Figure(figsize=(width / _PER_INCH, height / _PER_INCH), dpi=_PER_INCH)
        self._figure.patch.set_visible(False)

    def axes(self, *, top: int, height: int) -> Any:
        """A frameless area with nothing but a base line."""
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
            spine.set_gid("base")
        made.tick_params(bottom=False, left=False, which="both")
        made.tick_params(axis="x", pad=8)
        return made

    def filled(self, axes: Any, name: str, values: Sequence[float], edges: Sequence[float]) -> None:
        """An area of steps."""
        if any(values):
            axes.stairs(values, edges, fill=True).set_gid(name)

    def outlined(self, axes: Any, name: str, values: Sequence[float], edges: Sequence[float]) -> None:
        """The upper edge of one."""
        axes.stairs(values, edges, baseline=None).set_gid(name)

    def counted(self, axes: Any, name: str) -> None:
        """A scale of whole numbers from 0, few lines, and what it counts above it."""
        top = max(axes.dataLim.y1, 1) if math.isfinite(axes.dataLim.y1) else 1
        axes.set_ylim(0, top * 1.04)
        tall = axes.get_position().height * self._height > 60  # noqa: PLR2004
        axes.yaxis.set_major_locator(MaxNLocator(4 if tall else 2, integer=True))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: wording.compact(value)))
        axes.yaxis.grid(visible=True)
        axes.annotate(name, (0, 1), (0, 8), xycoords="axes fraction", textcoords="offset points").set_gid(
            "name"
        )

    def cumulative(self, axes: Any, shares: tuple[list[float], list[float]], low: float, high: float) -> None:
        """The share up to each value, on a logarithmic scale."""
        xs, ys = shares
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xlim(low, high)
        axes.fill_between(xs, ys, 0.0).set_gid("share")
        axes.plot(xs, ys)[0].set_gid("curve")
        axes.set_ylim(0, 1)
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
        axes.yaxis.grid(visible=True)

    def label(self, axes: Any, text: str) -> None:
        """What the scale below measures."""
        axes.annotate(
            text, (0.5, 0), (0, -38), xycoords="axes fraction", textcoords="offset points", ha="center"
        ).set_gid("name")

    def marks(self, axes: Any, marks: Sequence[Mark]) -> None:
        """One or two lines across, each with its label above, in rows of their own and where no other line crosses it."""
        if not marks:
            return
        left, right = axes.get_xlim()
        area = axes.get_position()
        width, height = area.width * self._width, area.height * self._height
        shares = [math.log(each.at / left) / math.log(right / left) for each in marks]
        widths = [len(each.text) * _LETTER / width for each in marks]
        for each, (row, side) in zip(marks, _arranged(shares, widths), strict=True):
            axes.axvline(each.at, ymax=1 + (30 - 16 * row) / height, clip_on=False).set_gid(each.name)
            axes.annotate(
                each.text, (each.at, 1), (5 * side, 22 - 16 * row), xycoords=("data", "axes fraction"),
                textcoords="offset points", ha="left" if side > 0 else "right",
            ).set_gid(each.name)  # fmt: skip

    def svg(self, kind: str, title: str, description: str) -> str:
        """What was drawn, small."""
        written = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        self._figure.savefig(written, format="svg", metadata=nothing)
        return svg.distilled(written.getvalue(), kind=kind, title=title, description=description)


def _arranged(shares: Sequence[float], widths: Sequence[float]) -> list[tuple[int, int]]:
    """Row (0 is the upper one) and side (1 is the right) of each label: within the drawing, and off the other's line.

    A line goes up to its own row, so only the label in the lower row can meet the other's line.
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
def drawing(width: int, height: int) -> Iterator[Drawing]:
    """A new one, under matplotlib's own settings, whatever the user's are."""
    with _silent(), mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "ringfence", "font.size": 12.0})
        mpl.rcParams.update({"path.simplify": False, "text.parse_math": False, "axes.unicode_minus": False})
        yield Drawing(width, height)
