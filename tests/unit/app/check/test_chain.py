import json
from collections.abc import Sequence
from typing import Any

import pytest

from app.check.chain import TOPICS, Chained, judge, summary
from app.check.records import ID_HEADER, PART_HEADER, SOURCE_HEADER, CannotJudgeError, Record


def order(offset: int, value: str | None, account: str | None = "a", part: str | None = None) -> Record:
    headers = [(SOURCE_HEADER, b"orders/0/%d" % offset)]
    if part is not None:
        headers.append((PART_HEADER, part.encode()))
    key = None if account is None else account.encode()
    return Record(0, offset, key, None if value is None else value.encode(), tuple(headers), 0)


ORDERS = [
    order(0, '{"amount": 5}'), order(1, "7", part="2/3"), order(2, None), order(3, '{"amount": 2}', "b"), order(4, "4", None),
]  # fmt: skip
LINES: list[tuple[str | None, dict[str, Any]]] = [
    ("a", {"order": "orders/0/0", "amount": 5, "total": 5, "entry": 1}),
    ("a", {"order": "orders/0/1#2", "amount": 7, "total": 12, "entry": 2}),
    ("a", {"order": "orders/0/2", "amount": 0, "total": 12, "entry": 3}),
    ("b", {"order": "orders/0/3", "amount": 2, "total": 2, "entry": 1}),
    (None, {"order": "orders/0/4", "amount": 4, "total": 4, "entry": None}),
]


def results(topic: str) -> list[Record]:
    found = []
    for offset, (account, full) in enumerate(LINES):
        line = {name: item for name, item in full.items() if name != "entry" or topic.startswith("ledger")}
        key = None if account is None else account.encode()
        headers = ((ID_HEADER, b"%d" % offset),)
        found.append(Record(0, offset, key, json.dumps(line).encode(), headers, 0))
    return found


def judged(topic: str, records: Sequence[Record]) -> Chained:
    return judge(ORDERS, {name: results(name) for name in TOPICS} | {topic: records})


def faults(found: Chained) -> tuple[int, int, int, int]:
    """Lost, doubled, out of order, wrong."""
    return len(found.lost), len(found.doubled), len(found.out_of_order), len(found.wrong)


def test_exact() -> None:
    """An exact chain includes an order without a value, a part of a transaction, and an order without an account."""
    found = judged("billing", results("billing"))

    assert faults(found) == (0, 0, 0, 0), found
    exact, killed = summary(found, 3)
    assert exact.endswith(
        "5 orders of 2 accounts, 0 lost, 0 doubled, 0 out of order, 0 wrong. All totals are exact."
    )
    assert killed.startswith("3 of them were in billing when its handler was killed with SIGKILL.")


@pytest.mark.parametrize("topic", TOPICS)
def test_one_fault(topic: str) -> None:
    one, two, three, four, five = results(topic)

    assert faults(judged(topic, [one, three, four, five])) == (1, 0, 0, 0)
    assert faults(judged(topic, [one, two, three, four])) == (1, 0, 0, 0)
    assert faults(judged(topic, [one, two, three, three, four, five])) == (0, 1, 0, 0)
    assert faults(judged(topic, [one, three, two, four, five])) == (0, 0, 1, 0)
    assert faults(judged(topic, [one, four, five, two, three])) == (0, 0, 0, 0)
    assert faults(judged(topic, [one, two, four, five, three._replace(partition=1)])) == (0, 0, 1, 0)


@pytest.mark.parametrize("topic", TOPICS)
def test_a_wrong_line(topic: str) -> None:
    """A line with another account, total, number or ID, or without an ID, is wrong. One without its order is lost as well."""
    first, *rest = results(topic)
    changes: list[dict[str, Any]] = [
        {"key": b"b"},
        {"key": None},
        {"value": b'{"order": "orders/0/0", "amount": 5, "total": 6, "entry": 1}'},
        {"value": b'{"order": "orders/0/0", "amount": 5, "total": 5, "entry": 2}'},
        {"headers": ()},
        {"headers": ((ID_HEADER, b"2"),)},
    ]
    for change in changes:
        assert faults(judged(topic, [*rest, first._replace(**change)]))[3] == 1, change
    for value in (None, b"", b"{", b"[]", b'{"order": "orders/0/9"}', b'{"order": 1}'):
        assert faults(judged(topic, [first._replace(value=value), *rest])) == (1, 0, 0, 1)


def test_orders_that_cannot_be_judged() -> None:
    for broken, said in (
        (order(0, "{}"), "has no amount"),
        (order(0, "x"), "has no amount"),
        (order(0, "1")._replace(headers=()), "has no _RF_SOURCE"),
    ):
        with pytest.raises(CannotJudgeError, match=said):
            judge([broken], {})
