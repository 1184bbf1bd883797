import csv
import io
from dataclasses import fields, replace
from typing import Any

from reconcile.listing import PAUSE_MS, WIDTH, Shown, grouped, in_groups, one_by_one, reason, write_csv
from reconcile.page.report_data import Finding
from tests.support.reconcile import figures

BEGIN = figures.BEGIN
LOST = Finding(
    "LOST", "orders", 1, 30_000, None, None, None, None, None, "a,1", "g", "neither accepted nor known", timestamp=BEGIN
)  # fmt: skip


def _at(offset: int, timestamp: int | None, partition: int = 1, **changes: str) -> Shown:
    return Shown("orders", replace(LOST, offset=offset, partition=partition, timestamp=timestamp, **changes))  # type: ignore[arg-type]


def test_groups_by_partition_reason_and_time() -> None:
    """A pause in time, another partition and a missing time begin lines; another reason begins a group, the largest first.

    An output without an input stands under its own topic and partition.
    """
    found = [
        _at(7, BEGIN, detail="another reason"), _at(3, BEGIN), _at(1, BEGIN + PAUSE_MS), _at(9, BEGIN + 2 * PAUSE_MS + 1),
        _at(4, None), _at(2, BEGIN, partition=0),
    ]  # fmt: skip
    first, second = grouped(found)

    assert (first.reason, first.rows, second.reason, second.rows) == (LOST.detail, 5, "another reason", 1)
    assert [(line.partition, line.rows, line.first, line.last) for line in first.lines] == [
        (0, 1, 2, 2), (1, 1, 4, 4), (1, 2, 1, 3), (1, 1, 9, 9),
    ]  # fmt: skip
    assert [line.begin_ms for line in first.lines] == [BEGIN, None, BEGIN, BEGIN + 2 * PAUSE_MS + 1]
    output: dict[str, Any] = {"out_topic": "orders.accepted", "out_partition": 4, "out_offset": 8}
    phantom = replace(LOST, anomaly="PHANTOM", partition=None, offset=None, **output)
    [group] = grouped([Shown("orders", phantom)])
    assert [(line.partition, line.first) for line in group.lines] == [(4, 8)]
    assert next(in_groups([group])) == "PHANTOM in orders.accepted (address orders): 1 row"


def test_reasons_without_values() -> None:
    for one, other in (
        ("accepted after offset 12 of its group", "accepted after offset 7 of its group"),
        ("part 3: value not as in the input", "value not as in the input"),
        ("hop east/a1b2/0/7: its lane knew it", "hop east/a1b2/1/999: its lane knew it"),
        ("1, 2 of 5 accepted, in a.accepted", "3 of 4 accepted, in a.accepted"),
        ("its original is given as orders/1/20, which is wrong", "its original is given as orders/2/3, which is wrong"),
    ):  # fmt: skip
        assert reason(one) == reason(other)
        assert reason("its group is in topic v2-orders") == "its group is in topic v2-orders"


def test_all_fit_80_columns() -> None:
    """Groups and single anomalies of a run, with long offsets and names, fit; a place and an ID stay whole.

    Texts of others control no terminal.
    """
    long = replace(LOST, offset=123_456_789_012, id="i" * 60, group="g" * 60, detail="words " * 40)
    later = replace(long, offset=123_456_789_999, timestamp=BEGIN + PAUSE_MS)
    odd = replace(LOST, detail="hop \x1b[31m", id="\x1b]0;", out_topic="\x9b", out_partition=0, out_offset=1)
    found = [Shown("orders", item) for item in (*figures.run().addresses[0].findings, long, later, odd)]
    groups, rows = list(in_groups(grouped(found))), list(one_by_one(found))

    assert max(map(len, [*groups, *rows])) <= WIDTH
    assert all(line.isprintable() for line in [*groups, *rows])
    assert "LOST  orders/1/123456789012, 2026-11-21 00:00:00 UTC" in rows
    assert f"  ID {'i' * 60}" in rows
    assert any("123456789012-123456789999  2026-11-21 00:00 - 01:00" in line for line in groups)


def test_csv() -> None:
    """Each field of an anomaly is a column; commas, quotes and line ends in an ID come back."""
    found = [Shown("orders", replace(LOST, id='a,"b"\n')), Shown("payments", replace(LOST, group=None))]
    written = io.StringIO()

    write_csv(found, written)
    one, other = csv.DictReader(io.StringIO(written.getvalue()))
    assert list(one) == ["address", *(field.name for field in fields(Finding))]
    assert (one["id"], one["offset"], one["timestamp"]) == ('a,"b"\n', "30000", str(BEGIN))
    assert (other["address"], other["group"]) == ("payments", "")
