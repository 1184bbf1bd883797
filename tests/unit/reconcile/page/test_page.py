"""The page of a run and of an audit: read as a browser reads it, with what hostile producers send."""

import re
import unicodedata
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import pytest

from reconcile.anomalies.names import Anomaly
from reconcile.page import document, formatting, prose
from reconcile.page.report_data import Figures, Lane, LargeGroup, Moment
from tests.support.pages.report import PLAIN, RENDERED, RING, RUN, Read, found, read
from tests.support.reconcile import figures

HOSTILE: Final = (
    "<script>alert(1)</script>\"'><img src=x onerror=y>&amp;\x1b[201~\u202egnp\u2066\x00\r\n\ud800"
)


def test_self_contained() -> None:
    """No script, nothing from outside, a policy that forbids both; links lead to places in the page.

    It has a language, headings without gaps, and a title that begins with the verdict.
    """
    seen = Read(RENDERED)
    identifiers = seen.having("id")

    assert {tag for tag, _ in seen.elements}.isdisjoint({"script", "link", "iframe", "object", "base"})
    assert all(name.startswith("data:image/svg+xml;base64,") for name in seen.having("src"))
    assert len(identifiers) == len(set(identifiers))
    assert set(seen.having("href")) <= {f"#{identifier}" for identifier in identifiers}
    assert len(seen.having("href")) == 2 + 3  # the addresses, and the anomalies of one
    assert re.findall(r"https?://[^\s\"]+|url\(|@import", RENDERED) == []
    assert "default-src 'none'; img-src data:; style-src 'unsafe-inline'" in seen.having("content")
    assert seen.having("lang") == ["en"]
    assert (seen.headings[0], seen.headings.count(1)) == (1, 1)
    assert all(after <= before + 1 for before, after in pairwise(seen.headings))
    assert "<title>anomalies: Night of 21 November 2026</title>" in RENDERED


def test_hostile() -> None:
    """Markup, quotes, control and direction characters stay text, in whatever field they come: each as its escape.

    A name of 10,000 characters is shown by its beginning, its end and its length.
    """
    h = HOSTILE

    def page(text: str, **finding: str) -> str:
        address = replace(
            RUN.addresses[0], name=text, counts={text: 1}, groups_largest=[LargeGroup(text, 1)], anomalies={text: 2},
            findings=[found(h, anomaly=text, out_topic=h, out_partition=0, out_offset=0, **finding)],
        )  # fmt: skip
        return document.render(Figures(text, text, text, h, [address, address], [text]))

    html = page(h, id=h, group=h, detail=h)
    seen = Read(html)

    assert [tag for tag, _ in seen.elements] == [tag for tag, _ in Read(page("x")).elements]
    assert not any(name.startswith("on") for _, attrs in seen.elements for name in attrs)
    assert {name for name in html if unicodedata.category(name) in {"Cc", "Cf", "Cs"}} == {"\n"}
    html.encode()
    assert seen.said.count("<script>alert(1)</script>\"'><img src=x onerror=y>&amp;\\x1b[201~\\u202egnp") > 15
    assert "\\u2066\\x00\\r\\n\\ud800" in seen.said
    long = "a" * 5000 + "b" * 5000
    address = replace(PLAIN, name=long, groups_largest=[LargeGroup(long, 1)], findings=[found(id=long)])
    html = document.render(Figures("Night", "", "clean", "kafka:9092", [address]))
    assert html.count("aaa … bbb") == html.count("bbb (10,000 characters)") == 3
    assert len(html) < 40_000


@pytest.mark.parametrize("verdict", ["clean", ""])
def test_nothing(verdict: str) -> None:
    """A page of zero records states that in each part, and draws nothing."""
    html = document.render(figures.nothing(verdict=verdict))
    said = Read(html).said

    assert "No record arrived." in said
    assert "No resend seen in 1 day. The ring is off (id_cache_size = 0); nothing asks for another" in said
    assert "No record has a group." in said
    assert ("No lane took a record." if verdict else "No lane would get a record.") in said
    assert ("None found." in said) == bool(verdict)
    assert "None: no change is needed." in said
    assert "<img" not in html
    assert "No address was read." in read().said


NO_RESEND = replace(RING, resends=0)
ACROSS_BRIDGES = {"duplicates": 3, "bridge_duplicates": 3}


def test_ring() -> None:
    """The page states the need of the ring and its use, also of resends that do not affect a ring."""
    for address, said in (
        ({"ring": RING}, "(id_cache_size); 99.9 % of them need 3,914. Recommended: 5,900, which is the need in 7 d and 50 % headroom"),
        ({"ring": replace(RING, recommended=None, span_ms=60_000)}, "need 3,914. No size is recommended: the records span 1 min, and less"),
        ({"ring": replace(RING, capacity=0)}, "The ring is off (id_cache_size = 0); 99.9 % of them need 3,914."),
        ({"ring": replace(RING, overruns=1)}, "was accepted again: too late for it, too old (id_max_age), or the ring was cleared, resized or in memory"),
        ({"ring": replace(NO_RESEND, overruns=500)}, "nothing asks for another size. 500 resends were accepted again: too late"),
        ({"ring": replace(RING, resends=1, days=1)}, "1 resend in 1 day: half of them within 12 IDs, 99 % within 1,480"),
        ({"ring": replace(NO_RESEND, overruns=1)}, "No resend that a ring can catch was seen in 7 days. The ring"),
        ({}, "No resend seen in 7 days. The ring of a lane holds 2,000 IDs"),
        # The page must not deny what it counts.
        ({"counts": ACROSS_BRIDGES}, "can catch was seen in 7 days: 3 came over a bridge again, recognised by its hop. The ring"),
        ({"anomalies": {"CROSS-LANE": 2}}, "No resend that a ring can catch was seen in 7 days: 2 reached another lane. The ring"),
        (
            {"counts": {**ACROSS_BRIDGES, "duplicates": 4}},
            "No resend was measured in 7 days: 1 duplicate came at a distance that is not known, 3 came over a bridge again",
        ),
    ):  # fmt: skip
        changes: dict[str, Any] = {"ring": NO_RESEND, **address}
        assert said in read(replace(PLAIN, **changes)).said


def test_anomalies_come_before_advice() -> None:
    """A ring that is too small does not hide that records are lost.

    OVERRUN is red and asks to be looked at only if there is more of it than allowed. The badge has a sign and a
    word besides its colour, even for a verdict of another version.
    """
    for verdict, shown in (("clean", "✓clean"), ("gap", "?gap"), ("", "iaudit"), ("odd<b>", "?odd<b>")):
        assert f"Night{shown}" in read(PLAIN, verdict=verdict).said
    for overrun in (False, True):
        it = replace(PLAIN, ring=replace(RING, overrun=overrun), anomalies={"OVERRUN": 3})
        html = document.render(Figures("Night", "", "clean", "", [it]))
        assert ('<td class="n found">3</td>' in html, "Look at the anomalies" in html) == (overrun, overrun)
    assert set(formatting.MEANINGS) == {anomaly.value for anomaly in Anomaly} == set(figures.ANOMALIES)
    look = "Look at the anomalies of each address, below."
    said = Read(RENDERED).said
    calm = Read(document.render(figures.run(verdict="clean"))).said

    assert said.index(look) < said.index(RUN.advice[0])
    assert look not in calm
    assert RUN.advice[0].partition(":")[0] in calm
    assert look in Read(document.render(replace(RUN, advice=[]))).said


def test_many_lanes() -> None:
    """The page shows the 50 most delayed of 1,000 lanes in rows, and all of them in sentences.

    It counts the records that it does not draw, because their timestamps are far from all others.
    """
    address = replace(PLAIN, moments=[Moment(1_795_262_400_000, 5, 5, 0)], step_ms=1000)
    assert "Not drawn" not in read(address).said
    assert "Not drawn: 1 record with a timestamp far from" in read(replace(address, strays=1)).said
    assert "Not drawn: 1,200 records with timestamps far" in read(replace(address, strays=1_200)).said
    lanes = [Lane(at, at, 10, 0, at % 100, 1000 + at) for at in range(1000)]
    html = document.render(Figures("", "", "clean", "", [replace(PLAIN, lanes=lanes, ring=RING)]))
    rows = [int(found) for found in re.findall(r'<tr><th scope="row" class="n">(\d+)</th>', html)]

    assert len(rows) == 50
    assert rows[:11] == [999, 899, 799, 699, 599, 499, 399, 299, 199, 99, 998]
    said = Read(html).said
    assert "1,000 lanes. The busiest, 999, has 0.2 % of the records; evenly it would be 0.1 %." in said
    assert "49,500 records wait to be judged, in 990 of them." in said
    assert "Of a ring 50.0 % to 100.0 % is used, the median is 75.0 %." in said
    assert f"Shown are the {prose.LANES_MAX} with the most lag, then the most records." in said


def test_audit() -> None:
    """An audit's page describes lanes as they would be, and contains neither anomalies nor lag."""
    said = Read(document.render(replace(RUN, verdict=""))).said.replace("\N{NO-BREAK SPACE}", " ")

    for shown in (
        "Read only: nothing was written to Kafka", "Lanes, as Ringfence would fill them", "what would be accepted;",
        "4 lanes. A record is in the lane of its group, or without one of its ID, whatever its partition.",
        "The ring of a lane would hold 2,000 IDs", "11 resends would come too late for it.", "% would be used",
    ):  # fmt: skip
        assert shown in said
    assert not re.search("partitions|Partitions|Anomalies|wait to be judged|Parquet", said)


def test_trends() -> None:
    """A bar for each of the last runs, in the colour of its verdict, with its numbers on hover and in a table; one run is no trend."""
    page = document.render(figures.run())
    shown = page[page.index('<section class="all trends">') : page.index('<section class="address')]

    assert "<h2>The last 12 runs</h2>" in shown
    assert shown.count('<svg class="trend" role="img"') == 4
    assert [shown.count(f'<rect class="{kind}"') for kind in ("good", "bad", "unknown")] == [36, 8, 4]
    assert "<title>run 8, 2026-11-17 02:00, gap: 400</title>" in shown
    assert "anomalies of the last 12 runs. From 0 to 400. This run: 16." in shown
    assert shown.count("<tr>") == 13
    one = replace(figures.run(), runs=figures.past(12)[-1:])
    assert '<section class="all trends">' not in document.render(one)
