"""The page's drawings: what is drawn, and what is not."""

import logging
import re
from dataclasses import replace

import pytest

from reconcile.page import document, svg
from reconcile.page.figures import AddressFigures, Bin, Figures, GroupBin, Moment, Ring
from tests.support.pages import NIGHT, PLAIN, RENDERED, RING, SVG, Read, tree


@pytest.mark.parametrize(
    ("ring", "labels"),
    [
        (RING, {"id_cache_size 2,000", "recommended 3,914"}),
        (replace(RING, capacity=3914), {"id_cache_size 3,914", "recommended 3,914"}),
        (replace(RING, capacity=0), {"recommended 3,914"}),
        (replace(RING, capacity=1, recommended=1), {"id_cache_size 1", "recommended 1"}),
        (replace(RING, capacity=10**9, recommended=5), {"id_cache_size 1,000,000,000", "recommended 5"}),
    ],
)
def test_lines_of_the_ring(ring: Ring, labels: set[str]) -> None:
    """A line at the capacity and one at the recommended size, each labelled, wherever they are."""
    address = replace(PLAIN, ring=ring, distances=NIGHT.addresses[0].distances)
    [drawn] = SVG.findall(document.render(Figures("Night", "", "clean", "", [address])))
    root = tree(drawn)
    marks = {
        (each.text or "") for each in root.iter() if each.get("class") in {"capacity", "recommended"}
    } - {""}

    assert marks == labels
    lines = [
        each
        for each in root.iter()
        if each.tag.endswith("path") and each.get("class") in {"capacity", "recommended"}
    ]
    assert len(lines) == len(labels)


def test_drawings() -> None:
    """Each is well-formed, is an image with a name and a description, and has no identifiers that could collide."""
    drawings = SVG.findall(RENDERED)

    assert len(drawings) == 2 * 5
    for each in drawings:
        root = tree(each)
        assert root.get("role") == "img"
        assert [child.tag.rpartition("}")[2] for child in root][:2] == ["title", "desc"]
        assert all(child.text for child in root[:2])
        assert all(child.get("id") is None for child in root.iter())
        assert len(each) < 6000


def test_steps_go_down_to_nothing() -> None:
    """A stretch in which nothing came is drawn as nothing, not bridged."""
    moments = [Moment(at, 100, 100, 0) for at in (0, 1000, 5000)]
    [wide, _] = SVG.findall(document.render(Figures("", "", "clean", "", [replace(PLAIN, moments=moments)])))
    path = next(each.attrib["d"] for each in tree(wide).iter() if each.get("class") == "records")
    width = (1040 - 46 - 24) / 6

    steps = [float(each) for each in re.findall(r"h(-?[\d.]+)", path)]
    assert steps == pytest.approx([width * 2, width * 3, width], abs=0.2)


@pytest.mark.parametrize(
    "address",
    [
        replace(PLAIN, moments=[Moment(0, 1, 1, 0), Moment(2**62, 1, 1, 0)], step_ms=86_400_000),
        replace(PLAIN, moments=[Moment(-(2**62), 1, 1, 0)]),
        replace(PLAIN, moments=[Moment(0, 1, 1, 0)], step_ms=1),
        replace(PLAIN, distances=[Bin(float("inf"), 3)], ages=[Bin(float("inf"), 3)], ring=RING),
        replace(
            PLAIN, distances=[Bin(1, 3)], ages=[Bin(0, 3)], ring=replace(RING, capacity=0, recommended=0)
        ),
        replace(PLAIN, distances=[Bin(1e15, 3)], ages=[Bin(1e12, 3)], ring=RING),
        replace(PLAIN, group_sizes=[GroupBin(2**at, 10**9, 10**12) for at in range(60)]),
    ],
)
def test_odd_figures(address: AddressFigures) -> None:
    """Timestamps that no calendar has, distributions of one bin, huge numbers: drawn, not refused."""
    html = document.render(Figures("Night", "", "clean", "", [address]))

    assert "<svg" in html
    assert not re.search(r"\b(nan|inf)\b", "".join(SVG.findall(html)))


def test_times_are_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the machine is."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    said = Read(RENDERED).said

    assert "Times are UTC." in said
    assert "from 21 Nov 2026 00:00 to 22 Nov 2026 00:00 UTC" in RENDERED
    assert re.search(r">06:00</text>.*>22 Nov</text>", RENDERED)


def test_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same figures give the same bytes, also through JSON and whatever else uses matplotlib; nothing of it is changed."""
    import matplotlib as mpl  # noqa: PLC0415

    monkeypatch.setitem(mpl.rcParams, "font.size", 31.0)
    monkeypatch.setitem(mpl.rcParams, "ytick.major.pad", 77.0)
    logger = logging.getLogger("matplotlib")
    monkeypatch.setattr(logger, "level", 17)
    before = dict.copy(mpl.rcParams), logger.level

    assert document.render(NIGHT) == RENDERED
    assert document.render(Figures.from_json(NIGHT.to_json())) == RENDERED
    assert (dict.copy(mpl.rcParams), logger.level) == before


def test_paths_do_not_drift() -> None:
    """Rounded steps end where the exact ones do, also after 10,000 of them."""
    points = " ".join(f"L {at * 0.0333} {(at % 7) * 0.0777}" for at in range(10_000))
    drawn = svg.distilled(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><path d="M 0 0 {points}"/></svg>',
        kind="", title="t", description="d",
    )  # fmt: skip
    path = re.search(r' d="(M[^"]*)"', drawn)
    assert path is not None
    x = sum(float(each) for each in re.findall(r"[hl](-?[\d.]+)", path[1]))

    assert x == pytest.approx(9999 * 0.0333, abs=0.06)
