"""The demo's check, on hand-written histories: it must see each kind of fault, and none where there is none."""

import ast
import sys
from itertools import count
from pathlib import Path

import pytest

from app.demo import check
from app.demo.check import Judgement, Record, judge, straddling

ID = check.ID_HEADER


def _input(offset: int, duplicate_id: str | None, group: str | None = "g", partition: int = 0) -> Record:
    headers = (("trace", b"t"),) if duplicate_id is None else ((ID, duplicate_id.encode()), ("trace", b"t"))
    key = None if group is None else group.encode()
    return Record(partition, offset, key, b"v%d" % offset, headers, 1_000 + offset)


def _outputs(*accepted: Record, partition: int = 0) -> list[Record]:
    """What a faultless worker writes for these inputs, with gaps for transaction markers."""
    offsets = count(0, 2)
    return [
        each._replace(partition=partition, offset=next(offsets), headers=(*each.headers, _source(each)))
        for each in accepted
    ]


def _source(record: Record) -> tuple[str, bytes | None]:
    return (check.SOURCE_HEADER, f"orders/{record.partition}/{record.offset}".encode())


FIRST, SECOND, THIRD = _input(0, "1"), _input(1, "2"), _input(2, "3")
RESEND = _input(3, "1")
INPUTS = [FIRST, SECOND, THIRD, RESEND]


def _faults(found: Judgement) -> tuple[int, int, int, int]:
    return len(found.lost), len(found.doubled), len(found.out_of_order), len(found.changed)


def test_an_exact_run() -> None:
    """Each distinct message once, in order, unchanged; the resend is dropped."""
    found = judge("orders", INPUTS, _outputs(FIRST, SECOND, THIRD))

    assert found.exact
    assert (found.sent, found.distinct, found.accepted) == (4, 3, 3)
    assert _faults(found) == (0, 0, 0, 0)


def test_lost() -> None:
    """A message that is nowhere in the accepted topic."""
    found = judge("orders", INPUTS, _outputs(FIRST, THIRD))

    assert _faults(found) == (1, 0, 0, 0)
    assert found.lost == ["orders/0/1 (group g, ID 2): not accepted"]
    assert not found.exact


def test_doubled_by_one_input() -> None:
    """One input accepted twice."""
    found = judge("orders", INPUTS, _outputs(FIRST, SECOND, FIRST, THIRD))

    assert _faults(found) == (0, 1, 0, 0)


def test_doubled_by_a_resend() -> None:
    """Original and resend both accepted."""
    found = judge("orders", INPUTS, _outputs(FIRST, SECOND, THIRD, RESEND))

    assert _faults(found) == (0, 1, 0, 0)
    assert found.doubled == ["orders/0/3 (group g, ID 1): accepted 2 times"]


def test_swapped() -> None:
    """Two messages of one group in the wrong order."""
    found = judge("orders", INPUTS, _outputs(FIRST, THIRD, SECOND))

    assert _faults(found) == (0, 0, 1, 0)
    assert found.out_of_order == ["orders/0/1 (group g, ID 2): accepted after offset 2 of its group"]


def test_a_resend_in_place_of_its_original() -> None:
    """The original was dropped as a duplicate of itself, and the resend came later."""
    found = judge("orders", INPUTS, _outputs(SECOND, THIRD, RESEND))

    assert _faults(found) == (0, 0, 1, 0)


def test_a_group_in_two_partitions() -> None:
    """Without one partition a group has no order."""
    outputs = _outputs(FIRST, SECOND) + _outputs(THIRD, partition=1)

    assert _faults(judge("orders", INPUTS, outputs)) == (0, 0, 1, 0)


def test_groups_overtake_each_other() -> None:
    """Order is a group's own; messages without a group have none."""
    other, alone, alone_too = _input(1, "2", "h"), _input(2, None, None), _input(3, None, None)
    inputs = [FIRST, other, alone, alone_too]

    assert judge("orders", inputs, _outputs(alone_too, alone, other, FIRST)).exact


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": b"h"},
        {"value": None},
        {"timestamp": 999},
        {"headers": ((ID, b"2"), ("trace", None))},
        {"headers": (("trace", b"t"), (ID, b"2"))},
        {"headers": ((ID, b"2"), ("trace", b"t"), ("more", b""))},
    ],
)
def test_changed(wrong: dict[str, object]) -> None:
    """Key, value, timestamp or headers, their order included, are not those of the input."""
    outputs = _outputs(FIRST, SECOND, THIRD)
    spoilt = outputs[1]._replace(**wrong)  # type: ignore[arg-type]
    if "headers" in wrong:
        spoilt = spoilt._replace(headers=(*spoilt.headers, _source(SECOND)))
    found = judge("orders", INPUTS, [outputs[0], spoilt, outputs[2]])

    assert _faults(found) == (0, 0, 0, 1)
    assert next(iter(wrong)) in found.changed[0]


@pytest.mark.parametrize(
    "sources",
    [
        [],
        [b"orders/0/99"],
        [b"payments/0/1"],
        [b"orders/0"],
        [b"orders/0/x"],
        [b"\xff"],
        [None],
        [b"orders/0/1", b"orders/0/1"],
    ],
)
def test_phantom(sources: list[bytes | None]) -> None:
    """An output that names no input, a wrong one or two is no acceptance of what it resembles."""
    outputs = _outputs(FIRST, SECOND, THIRD)
    outputs[1] = outputs[1]._replace(
        headers=(*SECOND.headers, *((check.SOURCE_HEADER, each) for each in sources))
    )

    assert _faults(judge("orders", INPUTS, outputs)) == (1, 0, 0, 1)


def test_without_id_each_counts() -> None:
    """Messages without an ID are distinct, however alike; a null ID is none; the last of several IDs counts."""
    alike = [_input(0, None)._replace(value=b"v"), _input(1, None)._replace(value=b"v")]
    null = _input(2, None)._replace(headers=((ID, None),))
    two = _input(3, None)._replace(headers=((ID, b"x"), (ID, b"y")))
    same = _input(4, "y")
    inputs = [*alike, null, two, same]

    assert judge("orders", inputs, _outputs(*alike, null, two)).exact
    assert judge("orders", inputs, _outputs(*alike, two)).lost == [
        "orders/0/2 (group g, ID none): not accepted"
    ]


def test_straddling() -> None:
    """Resends whose original was consumed before the kill and which follow it."""
    assert straddling(INPUTS, {0: 2}) == 1
    assert straddling(INPUTS, {0: 4}) == 0
    assert straddling(INPUTS, {}) == 0


def test_it_imports_nothing_of_ringfence() -> None:
    """A checker must not inherit the mistakes of the checked: only Kafka's client and what prints a table."""
    tree = ast.parse(Path(check.__file__).read_text("utf-8"))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or ".").split(".")[0])

    assert imported - set(sys.stdlib_module_names) == {"confluent_kafka", "rich"}
