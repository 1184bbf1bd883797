"""The check reads the product's reports of gaps as the product means them."""

import pytest

from tests.simulator.gap_log import Gap, gap, in_vain


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "lane orders-0 GAP: offsets 3 to 5 of orders/0 were deleted by retention before they were processed; continuing at 6",
            Gap("orders", 0, 3, 6),
        ),
        (
            "GAP: orders.accepted/1 begins at 9, but readers has finished it only up to 4: retention deleted the messages between",
            Gap("orders.accepted", 1, 4, 9),
        ),
        (
            "GAP: orders.accepted/1 begins at 9, and readers has neither progress nor an offset there",
            Gap("orders.accepted", 1, 0, 9),
        ),
        ("GAP: orders.accepted/0/7 is gone: retention or compaction deleted it unprocessed", Gap("orders.accepted", 0, 7, 8)),
        ("orders/0: reading again", None),
    ],
)  # fmt: skip
def test_named(line: str, expected: Gap | None) -> None:
    assert gap(line) == expected


def test_in_vain() -> None:
    """A reported gap is wrong when retention has deleted none of its records that were needed."""
    said = Gap("orders", 0, 3, 6)

    assert list(in_vain([said], "orders", 0, {5, 6})) == []
    assert list(in_vain([said], "orders", 1, set())) == []
    assert len(list(in_vain([said], "orders", 0, {2, 6}))) == 1
