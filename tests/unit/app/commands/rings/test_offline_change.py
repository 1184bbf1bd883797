from app.commands.rings.offline_change import unjudged_from
from tables.codec import Meta


def test_begin_of_what_is_left() -> None:
    """The unjudged input begins at the offset from which the lane would open."""
    for meta, committed, start, begin in (
        (None, None, 7, 7),
        (None, 9, 7, 9),
        (Meta(10, 5, 0, {"orders": 12}, {}, "i"), 9, 7, 12),  # written before topics were told apart
        (Meta(10, 5, 0, {"orders": 12}, {}, "i", topic_ids={"orders": "now"}), 15, 7, 15),
        (Meta(10, 5, 0, {"orders": 12}, {}, "i", topic_ids={"orders": "now"}), None, 20, 20),
        (Meta(10, 5, 0, {"orders": 12}, {}, "i", topic_ids={"orders": "before"}), 9, 0, 0),
        (Meta(10, 5, 0, {}, {}, "i", topic_ids={"orders": "now"}), None, 3, 3),
        (Meta(10, 5, 0, {"orders/1": 20, "orders/3": 12}, {}, "i", lanes=2), 9, 7, 12),
        (Meta(10, 5, 0, {"orders/1": 20}, {}, "i", lanes=2), 9, 7, 9),  # a partition that came since
    ):
        assert unjudged_from(("orders", 3), "now", meta, committed, start) == begin
