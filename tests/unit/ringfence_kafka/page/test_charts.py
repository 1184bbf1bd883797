from xml.etree import ElementTree as ET

from ringfence_kafka.page.charts import blocks, chart, spark
from ringfence_kafka.page.history import SPANS, Values


def _shown(value: float) -> str:
    return f"{value:g}/s"


def _points(values: Values) -> str:
    return str(ET.fromstring(spark(values, "in", _shown))[0].get("d"))  # noqa: S314 - our own


def test_a_line_has_its_values() -> None:
    """The largest value is at the top, 0 at the bottom; a level stretch is one line. A time without a value is a gap."""
    assert _points([0, 0, 0, 5, 10]) == "M0 20l2 0 1-10 1-10"
    assert _points([7]) == "M0 0h0"
    assert _points([None, 4, 4, None, 2, None]) == "M1 0l1 0M4 10h0"
    assert spark([None, None], "in", _shown) == ""
    assert "no figures yet" in chart("lag", SPANS["hour"], {"lag": [None]}, _shown)


def test_a_large_chart_is_well_formed() -> None:
    """It has a line and a legend for each figure with values, and the times of its span."""
    hour: Values = [None] * 300 + [float(number % 9) for number in range(60)]
    text = chart("messages", SPANS["hour"], {"in": hour, "<lost>": hour, "none": [None]}, _shown)
    figure = ET.fromstring(text)  # noqa: S314 - our own
    image = ET.fromstring(spark([3, None, 1, 2, None], '<b>"in"', _shown))  # noqa: S314 - our own

    assert [element.get("class") for element in figure.iter("path")] == ["grid", "line-0", "line-1"]
    assert "in 5/s" in "".join(figure.itertext())
    assert "<lost> 5/s" in "".join(figure.itertext())
    assert "30 minutes ago" in text
    assert image.get("aria-label") == '<b>"in": last 2/s, least 1/s, most 3/s'


def test_blocks_of_a_terminal() -> None:
    """They have at most the given width, a blank for what is not known, and the largest value of each part."""
    assert blocks([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert blocks([None, None, 1, 0, 8, 0], 3) == " ▁█"
    assert len(blocks([1.0] * 60, 12)) == 12
    assert blocks([0, 0, 0], 3) == "▁▁▁"
    assert blocks([None] * 60, 12) == ""
