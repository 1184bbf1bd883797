"""Messages that wait for a person: dead letters, quarantine, messages without an ID; each is one finding, and each table fits 80 columns."""

from dataclasses import replace
from typing import Any

import pytest

from app.commands.status import page
from app.commands.status import status as verb
from app.commands.status.findings import findings
from app.commands.status.model import LeftLetters, Status
from ringfence_client.progress.open_records import OpenRecords
from ringfence_kafka.protocol.run_result import RunResult
from tests.support import statuses
from tests.support.statuses import BRIDGE, STATUS, WORKER, only, printed, with_lanes, with_share

OPEN = OpenRecords(
    count=21, at_least=False, oldest_seconds=7_300.0, oldest_place="0/17", oldest_reason="ValueError: no"
)
TEXT = "are open, the oldest for 2 hours (at 0/17): ValueError: no"


def test_open_dead_letters() -> None:
    """Open dead letters stand, although no message waits; the groups behind them are named in the same line.

    Status also finds dead letters of a forgotten consumer group, and those without a consumer group.
    """
    left = [LeftLetters("audit it", "orders", OPEN), LeftLetters("", "orders", OPEN)]
    known, unknown = findings(replace(STATUS, left_letters=left))
    assert (known.where, known.stands) == ("audit it at orders", True)
    assert known.command == "ringfence dlq list orders --consumer-group 'audit it'"
    assert (unknown.where, unknown.command) == ("no consumer group at orders", "ringfence dlq list orders")

    found = only(with_share({"dead_letters": OPEN}))
    assert (found.where, found.stands) == ("billing at orders", True)
    assert found.what == f"21 dead letters {TEXT}"
    assert found.command == "ringfence dlq redrive orders --consumer-group billing"
    status = with_share(
        {"dead_letters": replace(OPEN, at_least=True)}, blocked=21, blocked_group="g1", lag=40
    )
    blocked = only(status)
    assert blocked.what.startswith("at least 21 dead letters are open")
    assert blocked.what.endswith("; 21 groups wait, each behind a message with a dead letter: g1 and 20 more")
    told = verb.as_document(status, [blocked])
    assert (told["ok"], told["consumers"][0]["dead_letters"]["count"]) == (False, 21)


def test_quarantined_records() -> None:
    """Quarantined records that nobody redrove stand."""
    [address] = STATUS.addresses
    found = only(replace(STATUS, addresses=[replace(address, quarantine=OPEN)]))

    assert (found.where, found.stands) == ("address orders", True)
    assert found.what == f"21 quarantined records {TEXT}"
    assert found.command == "ringfence quarantine redrive orders"
    found = only(replace(STATUS, addresses=[replace(address, quarantine=OPEN, chain_start="raw")]))
    assert "send the messages again to raw under new duplicate IDs" in found.do
    assert found.command == "ringfence quarantine list orders"
    without = replace(
        OPEN, oldest_reason='no duplicate ID: no header _AMQ_DUPL_ID (duplicate_id_missing = "quarantine")'
    )
    found = only(replace(STATUS, addresses=[replace(address, quarantine=without)]))
    assert "send them again with an ID" in found.do
    assert found.command == "ringfence quarantine list orders"
    found = only(replace(STATUS, bridges=[replace(BRIDGE, quarantine=OPEN)]))
    assert (found.where, found.stands) == ("bridge west", True)
    assert found.what == f"21 quarantined records {TEXT}"
    assert found.command == "ringfence quarantine redrive west --bridge"


def test_messages_without_an_id() -> None:
    """Messages without an ID are a note with the header names that they have."""
    for names, what, command in (
        (["traceparent", "_amq_dupl_id"], "; headers of such messages: traceparent, _amq_dupl_id",
         "ringfence audit orders --id-header _amq_dupl_id"),
        (["traceparent"], "; headers of such messages: traceparent", ""),
        ([], "a resend is accepted again", ""),
    ):  # fmt: skip
        status = with_lanes(unchecked=1, unchecked_headers=names)
        found = only(status)

        assert not found.stands
        assert found.what.startswith("2 messages have no duplicate ID (1.0 %)")
        assert found.what.endswith(what)
        assert found.command == command
        assert any("1.0 %" in line for line in printed(status, 80).splitlines())
        assert findings(with_lanes(unchecked=1, ring_capacity=0)) == []  # nothing looks for IDs


def test_deleted_unprocessed_records() -> None:
    """Records that retention deleted before a worker processed them are a note with the lanes and the way out."""
    found = only(with_lanes(gap_records=75))

    assert not found.stands
    assert found.what.startswith("150 records were deleted from its input before lanes")
    assert "raise retention.ms of orders" in found.do


def test_own_rules_that_differ() -> None:
    """Workers that treat conflicts differently are named: no group compares this key."""
    [address] = STATUS.addresses
    first, second = (replace(lane, own_rules={"on_conflict": "duplicate"}) for lane in address.lanes)
    assert findings(replace(STATUS, addresses=[replace(address, lanes=[first, second])])) == []
    second = replace(second, worker="w2", own_rules={"on_conflict": "divert"})
    found = only(replace(STATUS, addresses=[replace(address, lanes=[first, second])]))

    assert not found.stands
    assert 'on_conflict: worker w1: "duplicate"; worker w2: "divert"' in found.what


def test_groups_that_fail_are_one_line() -> None:
    """Thirteen failing groups in three partitions are one finding: the one that fails for the longest, and a count."""
    shares = [
        replace(statuses.SHARE, partition=index, lag=9, failing=count, failing_group=f"g{index}", failing_attempts=3, failing_seconds=60.0 + index)
        for index, count in enumerate((4, 4, 5))
    ]  # fmt: skip
    found = only(replace(STATUS, consumers=[replace(statuses.CONSUMERS, partitions=shares)]))

    assert found.where == "billing at orders, partitions 0, 1, 2"
    assert found.what == (
        "group g2 waits: its first message has failed for 62 s, 3 attempts so far; 12 other groups wait likewise"
    )
    assert found.command == "ringfence groups show orders --consumer-group billing"


def test_one_fault_of_an_address_is_one_line() -> None:
    """A missing topic that two workers, the status itself and the lanes report is one finding of the address."""
    fault = "orders (input topic of orders) does not exist: run 'ringfence topics create'"
    status = with_lanes(state="retrying", reason=f"TopicError: {fault}", lag=3)
    [address] = status.addresses
    status = replace(
        status,
        workers=[replace(WORKER, name=name, faults=[f"address orders: {fault}"]) for name in ("w1", "w2")],
        addresses=[replace(address, faults=["topic orders does not exist"])],
    )
    found = only(status)

    assert (found.where, found.stands, found.command) == ("address orders", True, "ringfence topics create")
    assert found.what == f"{fault}; up to 6 messages wait"
    other = replace(
        status, addresses=[replace(address, address="bills", faults=["no leader"])], workers=[WORKER]
    )
    assert {item.where for item in findings(other)} == {"address bills", "lanes orders-0, orders-1"}


NOW_MS = 1_767_225_600_000
"""The time of the status."""
HOUR_MS = 3_600_000
RUN = RunResult(verdict="clean", began_ms=NOW_MS - 4 * HOUR_MS, ended_ms=NOW_MS - 3 * HOUR_MS, number=7)


def _ran(**changes: Any) -> Status:
    return replace(STATUS, last_run=replace(RUN, **changes))


def test_last_run() -> None:
    """A run that is late, found something or failed is a note."""
    for changes, what, command in (
        ({"ended_ms": NOW_MS - 27 * HOUR_MS}, "the last run ended 27 hours ago; later messages", "ringfence reconcile"),
        ({"verdict": "anomalies", "anomalies": {"LOST": 1_200, "DOUBLED": 1}},
         "ended 3 hours ago with the verdict anomalies: LOST 1,200, DOUBLED 1", "ringfence reconcile show"),
        ({"verdict": "failed", "number": 0, "error": "no space"}, "with the verdict failed: no space", "ringfence reconcile"),
    ):  # fmt: skip
        found = only(_ran(**changes))

        assert (found.where, found.stands, found.command) == ("reconciliation", False, command)
        assert what in found.what
        assert findings(_ran(verdict="gap", acknowledged=True)) == []


def test_last_run_is_a_line() -> None:
    """The last run is shown with its verdict, its age and its report: as a link, or else its place."""
    status = _ran(messages=1_200, report="https://runs/7.html", host="spark")
    line = "RECONCILIATION  clean, 3 hours ago, 1,200 messages; report https://runs/7.html on spark"

    assert printed(status, 120).splitlines()[-1].rstrip() == line
    html = page.render(status, [], "w1", {})
    assert f'{line.partition(";")[0]}: <a id="report" href="https://runs/7.html">its report</a>' in html
    of_a_path = page.render(_ran(report="/var/runs/7.html", host="spark"), [], "w1", {})
    assert "; report /var/runs/7.html on spark</p>" in of_a_path
    assert verb.as_document(status, [])["last_run"]["verdict"] == "clean"
    unknown = "RECONCILIATION  no run is known; brokers forget one after 7 days"
    assert printed(STATUS, 80).splitlines()[-1].rstrip() == unknown
    assert unknown in page.render(STATUS, [], "w1", {})


LONG = "payments-of-the-northern-region"


def test_consumer_groups_are_named_at_80_columns() -> None:
    """A terminal of 80 columns shows consumer group and address whole; a wider one also shows which groups wait."""
    group = {"consumer_group": "billing-north", "address": "orders-europe", "dead_letters": OPEN}
    groups = {"hot_group": "customer-2", "head_group": "customer-3", "head_age_seconds": 900.0}
    status = with_share(group, lag=7_654, waiting=106, hot_depth=1_234, **groups)
    lines = [line for width in (80, 140) for line in printed(status, width).splitlines()]
    narrow, wide = (line for line in lines if line.startswith("billing-north at orders-europe "))

    assert [text in narrow for text in ("customer", "7,654", " 106 ")] == [False, False, True]
    assert [text in wide for text in ("customer-3", "customer-2: 1,234")] == [True, True]


@pytest.mark.parametrize("width", [80, 200])
def test_tables_fit(width: int) -> None:
    """Each row of a table is one line. Long names are shortened, and numbers are whole."""
    [address] = STATUS.addresses
    lanes = [replace(lane, lane=f"{LONG}-{lane.number}", rate=12_345.0, lag=98_765) for lane in address.lanes]
    group = {"consumer_group": LONG, "address": LONG, "dead_letters": OPEN}
    status = replace(
        with_share(
            group, lag=7_654, hot_group=LONG, hot_depth=1_234, head_group=LONG, head_age_seconds=900.0
        ),
        addresses=[replace(address, address=LONG, lanes=lanes)],
    )
    lines = printed(status, width).splitlines()
    tables = lines[lines.index(next(line for line in lines if line.startswith("ADDRESSES"))) :]

    assert max(map(len, tables)) <= width
    assert sum(line.startswith("payments") for line in tables) == 1 + len(lanes) + 1
    for number in ("24,690/s", "197,530", "10.0 %", "7,654", "15 minutes", " 21 "):
        assert any(number in line for line in tables), number
    assert any("…" in line for line in tables) == (width < 200)
