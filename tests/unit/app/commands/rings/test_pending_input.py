import pytest

from app.commands.rings.pending_input import unjudged_from
from tables.codec import Meta


@pytest.mark.parametrize(
    ("meta", "committed", "start", "begin"),
    [
        (None, None, 7, 7),
        (None, 9, 7, 9),
        (Meta(10, 5, 0, {"orders": 12}, {}, "i"), 9, 7, 12),  # written before topics were told apart
        (Meta(10, 5, 0, {"orders": 12}, {}, "i", topic_ids={"orders": "now"}), 15, 7, 15),
        (Meta(10, 5, 0, {"orders": 12}, {}, "i", topic_ids={"orders": "now"}), None, 20, 20),
        (Meta(10, 5, 0, {"orders": 12}, {}, "i", topic_ids={"orders": "before"}), 9, 0, 0),
        (Meta(10, 5, 0, {}, {}, "i", topic_ids={"orders": "now"}), None, 3, 3),
        (Meta(10, 5, 0, {"orders/1": 20, "orders/3": 12}, {}, "i", lanes=2), 9, 7, 12),
        (Meta(10, 5, 0, {"orders/1": 20}, {}, "i", lanes=2), 9, 7, 9),  # a partition that came since
    ],
)
def test_begin_of_what_is_left(meta: Meta | None, committed: int | None, start: int, begin: int) -> None:
    """The unjudged input begins at the offset from which the lane would open."""
    assert unjudged_from(("orders", 3), "now", meta, committed, start) == begin
