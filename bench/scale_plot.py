"""Draws what ``python -m bench scale`` has measured, as one SVG: a panel for each thing that grows."""

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FormatStrFormatter, NullFormatter, NullLocator

from bench import scale
from bench.scale import ADDRESSES, BYTES, DUPLICATES, LANES, Load, Point

_PANELS: Final[tuple[tuple[str, str, Callable[[Load], float], Callable[[Load], str]], ...]] = (
    (
        DUPLICATES,
        "duplicates",
        lambda load: load.resends,
        lambda load: f"{load.resends:.2%}".replace(".00", ""),
    ),
    (BYTES, "bytes of a value", lambda load: load.value_bytes, lambda load: _bytes(load.value_bytes)),
    (LANES, "lanes", lambda load: load.lanes, lambda load: str(load.lanes)),
    (ADDRESSES, "addresses of one lane", lambda load: load.addresses, lambda load: str(load.addresses)),
)
_LINES: Final[tuple[tuple[str, str, Callable[[Point], float]], ...]] = (
    ("worker", "#2b6cb0", lambda point: point.cpu),
    ("broker", "#a0aec0", lambda point: point.broker_cpu),
)
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none", "svg.hashsalt": "scale", "font.family": "sans-serif", "font.size": 9, "axes.edgecolor": "#a0aec0",
    "axes.labelcolor": "#2d3748", "xtick.color": "#4a5568", "ytick.color": "#4a5568", "text.color": "#2d3748",
}  # fmt: skip


def _bytes(count: int) -> str:
    return str(count) if count < 2**10 else f"{count // 2**10} KiB"


def draw(points: Sequence[Point], path: Path) -> None:
    """CPU seconds for a million messages, of worker and broker, over each series; the same points give the same bytes."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9.4, 5.2), layout="constrained")
        for axes, (name, label, at, text) in zip(figure.subplots(2, 2).flat, _PANELS, strict=True):
            known = [each for load in scale.SERIES[name] for each in points if each.load == load]
            places = range(len(known)) if name == DUPLICATES else [at(each.load) for each in known]
            for line, colour, value in _LINES:
                axes.plot(
                    places,
                    [value(each) for each in known],
                    marker="o",
                    markersize=4,
                    color=colour,
                    label=line,
                )
            if name != DUPLICATES:
                axes.set_xscale("log")
            if name == BYTES:
                axes.set_yscale("log")
                axes.yaxis.set_major_formatter(FormatStrFormatter("%g"))
                axes.yaxis.set_minor_formatter(NullFormatter())
            else:
                axes.set_ylim(bottom=0)
            axes.xaxis.set_major_locator(FixedLocator(list(places)))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_xticklabels([text(each.load) for each in known])
            axes.set_xlabel(label)
            axes.set_ylabel("CPU s / million")
            axes.grid(axis="y", color="#e2e8f0", linewidth=0.7)
            axes.spines[["top", "right"]].set_visible(False)
        figure.axes[0].legend(frameon=False)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None}, facecolor="white")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(re.sub(r"[ \t]+\n", "\n", drawn.getvalue()), "utf-8")
