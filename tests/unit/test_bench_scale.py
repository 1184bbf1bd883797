"""What the benchmark of growing loads makes of its points, and how a large ring's changelog is written."""

from dataclasses import replace
from pathlib import Path

from bench import rings, scale, scale_plot
from bench.scale import BASE, LANES, SERIES, Load, Point


def _point(load: Load, cpu_s: float = 1.0) -> Point:
    return Point(load, 500_000, 2.0, cpu_s, 3.0, 2**27, exact=True)


def test_each_load_once() -> None:
    """The load in the middle belongs to several series and is measured once; each differs from it in one thing, or in what that asks for."""
    everything = scale.loads([], quick=False)

    assert (
        len(everything)
        == len(set(everything))
        == len({each for series in SERIES.values() for each in series})
    )
    assert everything.count(BASE) == 1
    assert scale.loads([LANES], quick=False) == list(SERIES[LANES])


def test_quick_has_the_ends_of_each_series() -> None:
    """With few messages, and never more than there would be."""
    quick = scale.loads([], quick=True)

    ends = {replace(each, messages=0) for series in SERIES.values() for each in (series[0], series[-1])}
    assert {replace(each, messages=0) for each in quick} == ends
    assert max(each.messages for each in quick) <= 20_000


def test_figures_are_for_a_million() -> None:
    """Whatever number was measured."""
    point = _point(BASE)

    assert (point.rate, point.cpu, point.broker_cpu) == (250_000, 2.0, 6.0)


def test_points_of_other_series_stay(tmp_path: Path) -> None:
    """What is measured anew replaces what there was of the same load, and nothing else."""
    path = tmp_path / "results" / "scale.json"
    lanes = [_point(each) for each in SERIES[LANES]]
    scale.save(lanes, path)
    other, again = _point(replace(BASE, resends=0.8)), _point(BASE, cpu_s=7.0)

    known = scale.save([other, again], path)

    assert scale.read(path) == known
    assert {each.load: each.cpu_s for each in known} == {each.load: 1.0 for each in [*lanes, other]} | {
        BASE: 7.0
    }


def test_drawn_alike_each_time(tmp_path: Path) -> None:
    """The same points give the same bytes: a picture with a label for each point of each series."""
    points = [_point(each) for each in scale.loads([], quick=False)]
    for name in ("one.svg", "two.svg"):
        scale_plot.draw(points, tmp_path / name)

    drawn = (tmp_path / "one.svg").read_text("utf-8")
    assert drawn == (tmp_path / "two.svg").read_text("utf-8")
    assert drawn.rstrip().endswith("</svg>")
    for label in ("0.02%", "80%", "100 KiB", "256", "worker", "broker"):
        assert f">{label}<" in drawn


def test_ids_of_a_large_ring() -> None:
    """Different ones, as long as a UUID's text."""
    found = {rings.identity(each) for each in range(1_000)} | {rings.identity(10**9)}

    assert len(found) == 1_001
    assert {len(each) for each in found} == {36}
