from dataclasses import replace

import pytest

from app.commands.status import page
from app.commands.status import status as verb
from app.commands.status.findings import findings
from app.commands.status.lanes import _lane, _lanes_of, _named_by_changelogs, _Waiting
from app.commands.status.model import NOBODY, UNKNOWN
from ringfence_kafka.config.settings import AddressSettings
from tables.codec import Meta
from tests.support.statuses import LANE, STATUS, printed

ORDERS = AddressSettings.model_validate({"name": "orders", "lanes": 2})
PLACES = [("orders", 1), ("orders", 3)]
QUIET = _Waiting(lag=0, nothing=True, head=None, undecided=None)


def test_lag_is_that_of_all_partitions() -> None:
    """Messages of any partition count; the oldest message is that of all of them. With an unknown one the lag is unknown.

    The ring of a lane that nobody reports comes from the record of its number. A worker's lanes are counted by its
    input partitions; other topics do not count.
    """
    given = [*(("orders", partition) for partition in range(4)), ("app-orders-forward", 0)]
    assert [_lanes_of(given, {"orders": lanes}) for lanes in (0, 1, 2, 3)] == [4, 1, 2, 3]
    waits = [
        _Waiting(lag=5, nothing=False, head=3.0, undecided=None),
        _Waiting(lag=2, nothing=True, head=None, undecided=70.0),
        _Waiting(lag=7, nothing=False, head=9.0, undecided=60.0),
    ]
    meta = Meta(10, 25, 20, {}, {}, "i", lanes=2)
    lane = _lane(ORDERS, 1, [*PLACES, ("orders", 5)], "w1", {}, meta, waits)
    unknown = _lane(ORDERS, 1, PLACES, None, {}, None, [QUIET, QUIET._replace(lag=None, nothing=False)])

    assert (lane.lane, lane.number, lane.partitions) == ("orders-1", 1, [1, 3, 5])
    assert (lane.lag, lane.waiting, lane.head_age_seconds, lane.undecided_seconds) == (14, 12, 9.0, 70.0)
    assert (lane.state, lane.ring_size, lane.ring_capacity) == (UNKNOWN, 5, 10)
    assert (unknown.lag, unknown.waiting, unknown.state) == (None, None, NOBODY)


def test_partitions_are_shown_where_a_lane_has_several() -> None:
    def shown(partitions: list[int]) -> tuple[str, str]:
        address = replace(STATUS.addresses[0], lanes=[replace(LANE, partitions=partitions)])
        status = replace(STATUS, addresses=[address])
        assert verb.as_document(status, [])["addresses"][0]["lanes"][0]["partitions"] == partitions
        html = page.shown(
            "address", app="shop", worker="w1", title="orders", address=address, found=[], hour=page.NO_CHARTS, day=page.NO_CHARTS
        )  # fmt: skip
        return printed(status), html

    for text in shown([0, 1, 2, 3, 4, 5]):
        assert "0, 1, 2, 3 and 2 more" in text
    text, html = shown([0])
    assert "partitions" not in text
    assert ">partitions<" not in html


@pytest.mark.parametrize(("state", "stands"), [("open", False), ("refused", True)])
def test_a_file_with_other_lanes(state: str, stands: bool) -> None:
    """Messages wait for a file with other lanes only if a lane is not open."""
    address = replace(STATUS.addresses[0], lanes=[replace(LANE, state=state)], lanes_fault="other lanes")
    found = findings(replace(STATUS, addresses=[address]))
    [item] = [item for item in found if item.where == "address orders"]

    assert (item.what, item.command, item.stands) == ("other lanes", "ringfence topics check", stands)


def test_applications_of_changelogs() -> None:
    """Names with hyphens give all pairs of application and address that they may be made of."""
    topics = ["shop-eu-orders-changelog", "shop-changelog", "-orders-changelog", "shop-eu-orders-forward"]
    found = _named_by_changelogs(topics, {"orders", "eu-orders", "payments"})

    assert found == {"shop-eu": {"orders"}, "shop": {"eu-orders"}}
