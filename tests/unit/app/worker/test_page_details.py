"""The pages behind the overview: names are escaped, values are hidden, times have a zone, and large applications stay readable."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.commands.repair.records import Place, Refused
from app.commands.status import page
from app.commands.status.findings import findings
from app.commands.status.model import Address
from ringfence_kafka.page.history import SPANS, Charts, Subject, Values
from tests.support.pages.chromium import tab
from tests.support.statuses import CONSUMERS, LANE, SHARE, STATUS, with_share
from tests.unit.app.worker.test_page import overflow, served

EVIL = "<script>alert(1)</script>\x1b[31m"
LETTER = Refused(
    place=Place("orders.dlq", 1, 101), key=EVIL.encode(), value=f'{{"total": "{EVIL}"}}'.encode(), timestamp=1_790_000_000_000,
    headers=[(EVIL, b"\xff\x00"), ("id", EVIL.encode())], reason=EVIL, consumer_group=EVIL, attempts=3,
)  # fmt: skip
WAITING: list[dict[str, Any]] = [
    {"partition": 0, "group": EVIL, "depth": 12, "head_age_seconds": 340.0, "reason": "retry", "attempts": 3, "retry_at": "2026-01-01T08:00:00.000Z"},
    {"partition": 1, "group": "a", "depth": 3, "head_age_seconds": 40.0, "reason": "running", "running_seconds": 31.5},
    {"partition": 1, "group": None, "depth": 1, "head_age_seconds": 9.0, "reason": "parked"},
    {"partition": 2, "group": "b", "depth": 1, "head_age_seconds": 1.0, "reason": "waiting"},
]  # fmt: skip
GROUP = replace(CONSUMERS, consumer_group=EVIL)


def _past(span: str, *subjects: Subject) -> Charts:
    """Return figures that change in each slot."""
    names = {
        "address": ("in", "accepted", "duplicates", "lag", "covered"),
        "consumers": ("handled", "failed", "oldest"),
    }
    values: Values = [float(number * 7 % 19) for number in range(SPANS[span].slots)]
    return Charts(SPANS[span], {subject: dict.fromkeys(names[subject[0]], values) for subject in subjects})


def _shown(name: str, **values: Any) -> str:
    hour, day = (
        _past(span, ("address", "orders"), ("consumers", EVIL, "orders")) for span in ("hour", "day")
    )
    shared = {"app": "shop", "worker": "w1", "title": EVIL, "found": [], "fault": "", "consumer_group": EVIL}
    return page.shown(name, **(shared | {"address": "orders", "hour": hour, "day": day} | values))


_BAD = with_share({"consumer_group": EVIL, "faults": [EVIL]}, lag=5, hot_group=EVIL, hot_depth=4)
PAGES = {
    "consumers": _shown("consumers", group=GROUP, waiting=WAITING),
    "letters": _shown("letters", letters=[LETTER], LETTERS_MAX=200),
    "letter": _shown("letter", letter=LETTER, place="1/101", values=True),
    "address": _shown("address", address=Address("orders", "orders", [replace(LANE, worker=EVIL, reason=EVIL)])),
    "overview": page.render(_BAD, findings(_BAD), "w1", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_names_are_escaped(name: str) -> None:
    """Names, IDs, headers, values and reasons are text on each page."""
    assert "<script>alert" not in PAGES[name]
    assert "\x1b" not in PAGES[name]
    assert "&lt;script&gt;alert(1)" in PAGES[name]


def test_values_are_hidden() -> None:
    """A dead letter's value is shown only with the setting; other bytes than text are digits."""
    hidden = _shown("letter", letter=replace(LETTER, value=b"secret"), place="1/101", values=False)

    assert "secret" not in hidden
    assert "hidden: app.page_values" in hidden
    for text in ("&#34;total&#34;", "ff 00", "ringfence dlq redrive orders --at 1/101"):
        assert text in PAGES["letter"]


def test_groups() -> None:
    """Each group that waits has its reason; the time of a retry has its zone. A name with a slash is one part of a path.

    An empty group has another name than no group.
    """
    for key, group in ((None, "(none)"), (b"", "text:"), (b"a", "a")):
        letter = replace(LETTER, key=key, headers=[("", b"a")])
        of_one = _shown("letter", letter=letter, place="1/101", values=True)
        assert f'<td class="text">{group}</td>' in _shown("letters", letters=[letter], LETTERS_MAX=200)
        assert f"<dt>group</dt><dd>{group}</dd>" in of_one
        assert '<th scope="row">(no name)</th>' in of_one
    for text in ("failed, 3 attempts, next attempt", 'datetime="2026-01-01T08:00:00Z"', "a handler runs for 32 s",
                 "parked behind a dead letter", "waits for a handler"):  # fmt: skip
        assert text in PAGES["consumers"]
    status = replace(STATUS, consumers=[replace(CONSUMERS, consumer_group="a/b c")])
    assert 'href="/consumers/a%2Fb%20c/orders"' in page.render(status, [], "w1", {})


async def test_a_large_application(tmp_path: Path) -> None:
    """1,000 lanes with 100 consumer groups take less than 300 kB and one second of CPU, here and in the browser."""
    began = time.process_time()
    lanes = [
        replace(LANE, lane=f"orders-{number}", number=number, partitions=[number], lag=number * 97)
        for number in range(1_000)
    ]
    head: dict[str, Any] = {"head_age_seconds": 1.0, "head_group": "a-17", "hot_group": "a-1", "hot_depth": 7}
    group = replace(CONSUMERS, partitions=[replace(SHARE, lag=3, waiting=3, **head)])
    groups = [replace(group, consumer_group=f"service-{number}") for number in range(100)]
    status = replace(STATUS, addresses=[Address("orders", "orders", lanes)], consumers=groups)
    subjects = [("consumers", group.consumer_group, "orders") for group in groups]
    past = _past("glance", ("address", "orders"), *subjects)
    overview = page.render(status, findings(status), "w1", {}, "", past)
    documents = (overview, _shown("address", address=status.addresses[0]))
    assert time.process_time() - began < 2  # both
    for document in documents:
        assert len(document.encode()) < 300_000
        async with served([document]) as url, tab(tmp_path / str(len(document))) as shown:
            await shown.call("Performance.enable", timeDomain="threadTicks")
            await shown.show_as(1280, 900)
            await shown.open(url)
            metrics = (await shown.call("Performance.getMetrics"))["metrics"]
            assert {item["name"]: item["value"] for item in metrics}["TaskDuration"] < 1
            for width in (360, 2560):
                await shown.show_as(width, 900)
                assert await overflow(shown) <= 0


_WITHOUT_CONTRAST = """(() => {
  const parse = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = (rgb) => rgb.map((part) => part / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (each) => {
    for (; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (!colour.endsWith(", 0)")) return parse(colour);
    }
  };
  const ratio = (one, other) => (Math.max(light(one), light(other)) + 0.05) / (Math.min(light(one), light(other)) + 0.05);
  const found = [];
  for (const each of document.querySelectorAll("body *")) {
    const text = [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    const style = getComputedStyle(each);
    if (text && !each.closest("script") && ratio(parse(style.color), behind(each)) < 4.5) found.push(each.outerHTML.slice(0, 80));
    const line = each.tagName === "path" && !each.classList.contains("grid");
    if (line && ratio(parse(style.stroke), behind(each)) < 3) found.push(each.outerHTML.slice(0, 80));
  }
  return found;
})()"""
"""Elements whose text has a contrast below 4.5 to what is behind it, and lines of charts below 3 (WCAG AA)."""


async def test_in_a_browser(tmp_path: Path) -> None:
    """Each page fits every screen with whole words above its columns, has contrast in both colour schemes, and runs no foreign script."""
    documents = [""]
    tallest = "Math.max(0, ...[...document.querySelectorAll('thead th')].map((each) => each.offsetHeight))"
    others = {
        "ok": page.render(STATUS, [], "w1", {}),
        "away": page.render(None, [], "w1", {"orders-0": {"state": "retrying"}}, "away"),
    }
    async with served(documents) as url, tab(tmp_path) as shown:
        await shown.call("Emulation.setTimezoneOverride", timezoneId="Asia/Tokyo")
        for name, document in (PAGES | others).items():
            documents[:] = [document]
            for width, dark in ((360, True), (800, False), (1280, False), (2560, True)):
                await shown.show_as(width, 900, dark=dark)
                await shown.open(f"{url}?{name}{width}")
                assert await overflow(shown) <= 0, (name, width)
                assert await shown.run(tallest) < 80, (name, width)
                assert await shown.run(_WITHOUT_CONTRAST) == [], (name, dark)
            assert await shown.run("document.scripts.length") == 1
            if "<time" in document:
                assert await shown.run("document.querySelector('time').title.endsWith(' UTC')")
                local = "document.querySelector('time').textContent"
                assert await shown.run(f"{local} === new Date(document.querySelector('time').dateTime).toLocaleString()")  # fmt: skip
        assert [complaint for complaint in shown.complaints if "favicon" not in complaint] == []
