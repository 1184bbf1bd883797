"""A consumer's page: it says what to act on, escapes all words, and stays small."""

import time
from types import SimpleNamespace
from typing import Any

from ringfence_client.dispatch.failure_log import RECENT_MAX, FailedAttempt
from ringfence_client.progress.open_records import OpenRecords
from ringfence_client.web.lag_monitor import LagMonitor
from ringfence_client.web.metrics import figures
from ringfence_client.web.page import ROWS_MAX, render
from ringfence_client.web.web import Pages
from ringfence_kafka.page.history import History, merged
from tests.support.consumers.unconnected import unconnected

EVIL = "<script>alert(1)</script>"


def _page(consumer: Any, letters: OpenRecords | None = None, **health: Any) -> str:
    history = History(lambda: figures(consumer))
    history.sample()
    report = Pages(consumer, LagMonitor(consumer).watch).health() | health
    return render(consumer, report, {0: 4, 2: None}, letters, merged("hour", [history.document("hour")]))


def test_partitions_in_each_state() -> None:
    """The page has a row for each partition: held with its numbers, draining, waited for with the reason above."""
    page = _page(unconnected(), waiting={"2": "c9 holds its lease"})

    assert "<th scope=row>0</th><td class=text>held</td><td>4</td>" in page
    assert "<td>90 s</td>" in page
    assert "<th scope=row>1</th><td class=text>draining</td>" in page
    assert "<th scope=row>2</th><td class=text>waiting</td>" in page
    assert "1 thing to act on" in page
    assert "partition 2 is not open yet: c9 holds its lease" in page
    assert "<title>(1) Ringfence billing at orders</title>" in page


def test_what_is_well() -> None:
    """Without faults the page says ok, and that nothing failed. Brokers that are away, and open dead letters, are not ok."""
    consumer = unconnected()
    page = _page(consumer, ready=True)

    assert "ok: nothing to act on" in page
    assert "None since this consumer began." in page
    assert "0 of 10 handlers run" in page
    assert 'aria-label="age of the oldest message: oldest: last 90 s' in page
    away = _page(consumer, broker="away", faults=["progress is not written", "orders.accepted: no answer"])
    assert "1 thing to act on" in away
    assert "brokers do not answer" in away
    letters = OpenRecords(count=3, at_least=False, oldest_seconds=50.0, oldest_place="0/7", oldest_reason="x")
    opened = _page(consumer, letters, ready=True)
    assert "1 thing to act on" in opened
    assert "3 dead letters are open, the oldest for 50 s" in opened


def test_the_last_failures() -> None:
    """The last failed attempts stand with time, place, group, attempt and text, the newest first; all words are escaped."""
    consumer: Any = unconnected()
    for index in range(RECENT_MAX + 5):
        text = f"ValueError: {EVIL} {index}\x1b"
        failed = FailedAttempt(1_795_852_800_000, 0, index, EVIL.encode(), 3, text)
        consumer.dispatcher.attempts.recent_failures.append(failed)
    page = _page(consumer)

    assert page.count("ValueError") == RECENT_MAX
    assert page.index("<h3>0/24 of group ") < page.index("<h3>0/5 of group ")
    assert "<h3>0/4 of group " not in page
    assert "2026-11-28 08:00:00 UTC" in page
    assert EVIL not in page
    assert "ValueError: &lt;script&gt;alert(1)&lt;/script&gt; 24\\x1b" in page


def test_runs() -> None:
    """Runs stand with the longest first. A long one is marked, with the command that ends it; only so many are shown."""
    consumer = unconnected()
    now, fence = time.monotonic(), consumer.partitions[0].fence
    for offset in range(ROWS_MAX + 3):
        message: Any = SimpleNamespace(partition=0, offset=offset, group=b"it's", attempt=1, held=fence)
        consumer.dispatcher.runs._begun[object()] = message, now - 10 * offset
    page = _page(consumer)

    rows = [page.index(f"<th scope=row>0/{ROWS_MAX + at}</th>") for at in (2, 1)]
    assert rows == sorted(rows)
    assert "and 3 more" in page
    assert "<span class='ill'>17 minutes</span>" in page
    release = "ringfence groups release orders 'it'\"'\"'s' --consumer-group billing"
    assert release in page.replace("&#x27;", "'").replace("&quot;", '"')
