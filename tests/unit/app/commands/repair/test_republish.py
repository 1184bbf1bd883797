"""Redriving a quarantined record: its destination, and the prediction of another refusal."""

import json
from typing import Any

import pytest

from agents.decision.item import RESENT
from app.commands.repair.records import Digest, RedriveOptions
from app.commands.repair.republish import InputTopic, Published, Publisher, SizeCheck, outputs
from ringfence_kafka.admin.topics import TopicDescription
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import AddressSettings
from tests.support import kafka
from tests.support.refused import refused_record


def _publisher(
    *, bytes_max: int = 1_000, bridged: bool = False, force: bool = False, **address: Any
) -> Publisher:
    target = InputTopic("orders", 4, bytes_max)
    return Publisher(
        target, AddressSettings(name="orders", **address), RedriveOptions(force=force), bridged=bridged
    )


def test_where_it_goes() -> None:
    """A redriven record goes to the partition that it came from, modulo the partitions.

    A bridge's record goes to its home.
    """
    assert _publisher().published(refused_record(source="orders/6/1")).partition == 2

    homes = {
        _publisher(bridged=True).published(refused_record(key=b"%d" % index, source="s/3/1")).partition
        for index in range(40)
    }

    assert homes == {0, 1, 2, 3}
    same = {
        _publisher(bridged=True, group_header="h")
        .published(refused_record(key=b"%d" % index, headers=(("h", b"g"),)))
        .partition
        for index in range(40)
    }
    assert len(same) == 1


def test_what_is_left_behind() -> None:
    """A redriven record has its producer's content, and the number of its redrives."""
    headers = (
        ("h", b"1"), ("_RF_TX", b"json/1"), ("_RF_BRIDGE_DUPL_ID", b"b/t/0/1"), ("_RF_BRIDGE_CONFIRMED", b"0"),
        ("_RF_BRIDGE_IDS", b"ignore"), ("_RF_SOURCE", b"orders/0/1"), ("_RF_REASON", b"why"), ("_RF_REDRIVEN", b"1"),
        ("_RF_BRIDGE_APP", b"bremen"), ("h", None),
    )  # fmt: skip
    found = _publisher().published(refused_record(headers=headers, redriven=1))

    assert found.headers == [("h", b"1"), ("_RF_TX", b"json/1"), ("h", None), ("_RF_REDRIVEN", b"2")]
    assert (found.key, found.value) == (b"k", b"v")


@pytest.mark.parametrize(
    ("changes", "complaint", "forced"),
    [
        ({}, "", ""),
        ({"redriven": 2}, "", ""),
        ({"redriven": 3}, "redriven 3 times already", ""),
        ({"reason": "the header name 'x' is not UTF-8"}, "header names", ""),
        ({"headers": (("_RF_HOPS", b"berlin"),)}, "cluster connection", ""),
        ({"headers": (("_RF_HOPS", b"*" + b"A" * 22 + b",berlin"),)}, "cluster connection", ""),
        ({"headers": (("_RF_HOPS", b"*" + b"A" * 22),)}, "", ""),
        ({"digest": Digest(1, "00")}, "no longer in the input", "no longer in the input"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], complaint: str, forced: str) -> None:
    """A record that would come back, or would be changed, is left with the reason.

    An incomplete record is left even with force.
    """
    refused = refused_record(**changes)
    for found, expected in (
        (_publisher().refusal(refused), complaint),
        (_publisher(force=True).refusal(refused), forced),
    ):
        assert (expected in found) if expected else found == ""


def test_what_came_before_is_left() -> None:
    """A duplicate that the duplicates topic could not take is left.

    Without its hop it would be accepted once more.
    """
    refused = refused_record(reason=f"{RESENT}: 99 bytes, orders.duplicates takes max.message.bytes = 90")

    assert "would arrive twice: drop it" in _publisher().refusal(refused)
    assert _publisher(force=True).refusal(refused) == ""


def test_a_missing_id_would_come_back() -> None:
    """A record without an ID is left if the address needs one, and published if it does not need one any more."""
    refused, whole = refused_record(), refused_record(headers=(("a", b"1"),))
    keys: dict[str, Any] = {"duplicate_id_from": ("header:a", "key"), "duplicate_id_missing": "quarantine"}

    assert "the header a is missing or empty" in _publisher(**keys).refusal(refused)
    assert _publisher(**keys).refusal(whole) == ""
    assert _publisher(**{**keys, "duplicate_id_missing": "unchecked"}).refusal(refused) == ""


ORDERS, PAYMENTS = validate({"addresses": [{"name": "orders"}, {"name": "payments"}]}).addresses
FORWARD = "app-orders-forward"


def _room(sizes: dict[str, int | None], *, bridged: bool = False, end: int = 7, **address: Any) -> SizeCheck:
    """``sizes``: of a topic None = the cluster does not tell."""
    described = {
        name: TopicDescription(name, 4, None if size is None else {"max.message.bytes": str(size)})
        for name, size in sizes.items()
    }
    own = ORDERS.model_copy(update=address)
    return SizeCheck(
        "app", own, [PAYMENTS], InputTopic("orders", 4, 2**31 - 1, end), described, bridged=bridged
    )


def _published(size: int, partition: int = 3, **changes: Any) -> Published:
    given = {"partition": partition, "key": kafka.at_home(3, 4), "value": b"v" * size, "headers": []}
    return Published(**{**given, **changes})


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (
            {"orders.accepted": 1_000},
            "orders.accepted takes max.message.bytes = 1000: it would be refused again",
        ),
        ({"orders.accepted": 2_000}, ""),
        ({"orders.accepted": None}, ""),
        ({}, ""),
        ({FORWARD: 1_000}, ""),
    ],
)
def test_what_the_accepted_topic_takes(sizes: dict[str, int | None], expected: str) -> None:
    """A record is compared with the accepted topic by its accepted size; an unknown limit refuses nothing."""
    found = _room(sizes).refusal(_published(1_000))

    assert (expected in found) if expected else found == ""


def test_headers_of_ours_count() -> None:
    """Headers for place and key count towards the size, so a record fits exactly if it fits in the lane."""
    plain = _room({"orders.accepted": 1_000})
    by_header = _room({"orders.accepted": 1_000}, group_header="g")
    fits = max(index for index in range(1_000) if not plain.refusal(_published(index)))

    assert "1001 bytes" in plain.refusal(_published(fits + 1))
    assert _room({"orders.accepted": 1_000}, end=10).refusal(_published(fits)), "one digit more"
    assert by_header.refusal(_published(fits, headers=[("g", b"other")]))


def test_on_the_way() -> None:
    """A record published away from its home must fit the forward topic too, which is unknown at a bridge's target."""
    sizes: dict[str, int | None] = {FORWARD: 1_000}

    assert f"{FORWARD} takes" in _room(sizes).refusal(_published(1_000, partition=0))
    assert _room(sizes, bridged=True).refusal(_published(1_000, partition=0)) == ""
    assert FORWARD not in outputs("app", ORDERS, [], bridged=True)


@pytest.mark.parametrize(("lanes", "partition", "forwarded"), [(1, 0, False), (2, 1, False), (2, 0, True)])
def test_on_the_way_between_lanes(lanes: int, partition: int, forwarded: bool) -> None:
    """A lane forwards nothing to itself, whatever partitions it owns; a single lane needs no forward topic."""
    check = _room({FORWARD: 1_000}, lanes=lanes)

    assert (f"{FORWARD} takes" in check.refusal(_published(1_000, partition=partition))) is forwarded
    own = ORDERS.model_copy(update={"lanes": lanes})
    assert (FORWARD in outputs("app", own, [])) is (lanes > 1)


def test_parts() -> None:
    """Each part of a transaction is compared with the accepted topic of its address.

    An unreadable transaction is left to the lane.
    """
    parts = [{"key": "a", "value": "v"}, {"address": "payments", "key": "b", "value": "v" * 1_000}]
    headers = [("_RF_TX", b"json/1")]
    envelope = _published(0, value=json.dumps({"parts": parts}).encode(), headers=headers)
    room = _room({"orders.accepted": 500, "payments.accepted": 1_000})

    assert room.refusal(envelope).startswith("part 2/2: ")
    assert "payments.accepted takes" in room.refusal(envelope)
    assert _room({"orders.accepted": 500}).refusal(envelope) == ""
    assert room.refusal(envelope._replace(value=b"{}")) == ""
