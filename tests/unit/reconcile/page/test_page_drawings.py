import logging
import re
from dataclasses import replace

import pytest

from reconcile.page import document
from reconcile.page.report_data import Bin, Figures, GroupBin, Moment
from tests.support.pages.report import PLAIN, RENDERED, RING, RUN, Read, drawings, parts


def test_lines_of_the_ring() -> None:
    """A chart of the ring has labelled lines for its capacity and for the recommended size, wherever they are."""
    for ring, labels in (
        (replace(RING, recommended=None), {"id_cache_size 2,000"}),
        (replace(RING, capacity=5900), {"id_cache_size 5,900", "recommended 5,900"}),
        (replace(RING, capacity=0), {"recommended 5,900"}),
        (replace(RING, capacity=1, recommended=1), {"id_cache_size 1", "recommended 1"}),
        (replace(RING, capacity=10**9, recommended=5), {"id_cache_size 1,000,000,000", "recommended 5"}),
    ):
        address = replace(PLAIN, ring=ring, distances=RUN.addresses[0].distances)
        [drawn] = drawings(document.render(Figures("Night", "", "clean", "", [address])))
        names = ("capacity", "recommended")
        marks = {part.text for name in names for part in parts(drawn, f"{name}-label", "text")}

        assert marks == labels
        assert sum(len(parts(drawn, name, "path")) for name in names) == len(labels)


def test_drawings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each drawing is an image in the page, with a description and a size, and a page of two addresses stays small.

    Times are UTC.
    """
    images = [attrs for tag, attrs in Read(RENDERED).elements if tag == "img"]

    assert len(images) == len(drawings(RENDERED)) == 2 * 5
    for image in images:
        assert all(image[size] for size in ("width", "height"))
        assert ". " in (image["alt"] or "")
    assert len(RENDERED) < 400_000
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert "from 21 Nov 2026 00:00 to 22 Nov 2026 00:00 UTC" in document.render(RUN)
    texts = [element.text for element in drawings(RENDERED)[0].iter()]
    assert texts.index("06:00") < texts.index("22 Nov")


def test_odd_figures() -> None:
    """Odd figures are drawn: impossible timestamps, distributions of one bin, huge numbers, and no record at all."""
    for address in (
        replace(PLAIN, moments=[Moment(0, 1, 1, 0), Moment(2**62, 1, 1, 0)], step_ms=86_400_000),
        replace(PLAIN, moments=[Moment(-(2**62), 1, 1, 0)]),
        replace(PLAIN, moments=[Moment(0, 1, 1, 0)], step_ms=1),
        replace(PLAIN, distances=[Bin(float("inf"), 3)], ages=[Bin(float("inf"), 3)], ring=RING),
        replace(PLAIN, moments=[Moment(0, 0, 0, 0)], distances=[Bin(1.0, 0)], ages=[Bin(1.0, 0)]),
        replace(
            PLAIN, distances=[Bin(1, 3)], ages=[Bin(0, 3)], ring=replace(RING, capacity=0, recommended=0)
        ),
        replace(PLAIN, distances=[Bin(1e15, 3)], ages=[Bin(1e12, 3)], ring=RING),
        replace(PLAIN, group_sizes=[GroupBin(2**at, 10**9, 10**12) for at in range(60)]),
    ):
        html = document.render(Figures("Night", "", "clean", "", [address]))

        assert drawings(html)
        elements = [element for drawing in drawings(html) for element in drawing.iter()]
        assert not any(re.search(r"\b(nan|inf)\b", f"{part.attrib} {part.text}") for part in elements)


def test_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same figures give the same bytes, even beside other uses of matplotlib. Its settings stay unchanged."""
    import matplotlib as mpl

    monkeypatch.setitem(mpl.rcParams, "font.size", 31.0)
    monkeypatch.setitem(mpl.rcParams, "ytick.major.pad", 77.0)
    logger = logging.getLogger("matplotlib")
    monkeypatch.setattr(logger, "level", 17)
    before = dict.copy(mpl.rcParams), logger.level

    assert document.render(RUN) == RENDERED
    assert (dict.copy(mpl.rcParams), logger.level) == before
