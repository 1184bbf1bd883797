import json
from typing import Any

import pytest

from agents.decision.item import RESENT
from app.commands.repair.records import Digest
from app.commands.repair.republish import Published, SizeCheck, outputs
from ringfence_kafka.admin.topics import TopicDescription
from ringfence_kafka.config.load import validate
from tests.support import kafka
from tests.support.records.refused import publisher_of, refused_record


def test_where_it_goes() -> None:
    """A redriven record goes to the partition that it came from, modulo the partitions."""
    assert publisher_of().published(refused_record(source="orders/6/1")).partition == 2

    by_key, by_header = publisher_of(bridged=True), publisher_of(bridged=True, group_header="h")
    records = [
        refused_record(key=b"%d" % index, headers=(("h", b"g"),), source="s/3/1") for index in range(40)
    ]
    assert {by_key.published(record).partition for record in records} == {0, 1, 2, 3}
    assert len({by_header.published(record).partition for record in records}) == 1


def test_what_is_left_behind() -> None:
    """A redriven record has its producer's content, and the number of its redrives."""
    headers = (
        ("h", b"1"), ("_RF_TX", b"json/1"), ("_RF_BRIDGE_DUPL_ID", b"b/t/0/1"), ("_RF_BRIDGE_CONFIRMED", b"0"),
        ("_RF_BRIDGE_IDS", b"ignore"), ("_RF_SOURCE", b"orders/0/1"), ("_RF_REASON", b"why"), ("_RF_REDRIVEN", b"1"),
        ("_RF_BRIDGE_APP", b"bremen"), ("h", None),
    )  # fmt: skip
    found = publisher_of().published(refused_record(headers=headers, redriven=1))

    assert found.headers == [("h", b"1"), ("_RF_TX", b"json/1"), ("h", None), ("_RF_REDRIVEN", b"2")]
    assert (found.key, found.value) == (b"k", b"v")


def test_what_is_refused() -> None:
    """A record that would come back, would be changed or is a duplicate is left with the reason.

    An incomplete record is left even with force.
    """
    for changes, complaint, forced in (
        ({"redriven": 2}, "", ""),
        ({"redriven": 3}, "redriven 3 times already", ""),
        ({"reason": "the header name 'x' is not UTF-8"}, "header names", ""),
        ({"headers": (("_RF_HOPS", b"berlin"),)}, "cluster connection", ""),
        ({"headers": (("_RF_HOPS", b"*" + b"A" * 22 + b",berlin"),)}, "cluster connection", ""),
        ({"headers": (("_RF_HOPS", b"*" + b"A" * 22),)}, "", ""),
        ({"reason": f"{RESENT}: 99 bytes, orders.duplicates takes max.message.bytes = 90"}, "would arrive twice: drop it", ""),
        ({"digest": Digest(1, "00")}, "no longer in the input", "no longer in the input"),
    ):  # fmt: skip
        refused = refused_record(**changes)
        for found, expected in (
            (publisher_of().refusal(refused), complaint),
            (publisher_of(force=True).refusal(refused), forced),
        ):
            assert (expected in found) if expected else found == ""


def test_a_missing_id_would_come_back() -> None:
    """A record without an ID is left if the address needs one, and published if it does not need one any more."""
    refused, whole = refused_record(), refused_record(headers=(("a", b"1"),))
    keys: dict[str, Any] = {"duplicate_id_from": ("header:a", "key"), "duplicate_id_missing": "quarantine"}

    assert "the header a is missing or empty" in publisher_of(**keys).refusal(refused)
    assert publisher_of(**keys).refusal(whole) == ""
    assert publisher_of(**{**keys, "duplicate_id_missing": "unchecked"}).refusal(refused) == ""


ORDERS, PAYMENTS = validate({"addresses": [{"name": "orders"}, {"name": "payments"}]}).addresses
FORWARD = "app-orders-forward"


def _room(sizes: dict[str, int | None], *, bridged: bool = False, end: int = 7, **address: Any) -> SizeCheck:
    """``sizes``: of a topic None = the cluster does not tell."""
    described = {
        name: TopicDescription(name, 4, None if size is None else {"max.message.bytes": str(size)})
        for name, size in sizes.items()
    }
    own = ORDERS.model_copy(update=address)
    target = TopicDescription("orders", 4, {})
    return SizeCheck("app", own, [PAYMENTS], target, described, end=end, bridged=bridged)


def _published(size: int, partition: int = 3, **changes: Any) -> Published:
    given = {"partition": partition, "key": kafka.at_home(3, 4), "value": b"v" * size, "headers": []}
    return Published(**{**given, **changes})


@pytest.mark.parametrize(
    "sizes", [{"orders.accepted": 2_000}, {"orders.accepted": None}, {}, {FORWARD: 1_000}]
)
def test_what_the_accepted_topic_takes(sizes: dict[str, int | None]) -> None:
    """A record is compared with the accepted topic by its accepted size; an unknown limit refuses nothing."""
    refused = "orders.accepted takes max.message.bytes = 1000: it would be refused again"

    assert refused in _room({"orders.accepted": 1_000}).refusal(_published(1_000))
    assert _room(sizes).refusal(_published(1_000)) == ""
    # Headers for place and key count towards the size, so a record fits exactly if it fits in the lane.
    plain = _room({"orders.accepted": 1_000})
    fits = max(index for index in range(1_000) if not plain.refusal(_published(index)))
    assert "1001 bytes" in plain.refusal(_published(fits + 1))
    assert _room({"orders.accepted": 1_000}, end=10).refusal(_published(fits)), "one digit more"
    by_header = _room({"orders.accepted": 1_000}, group_header="g")
    assert by_header.refusal(_published(fits, headers=[("g", b"other")]))


def test_on_the_way() -> None:
    """A record published away from its home must fit the forward topic too, which is unknown at a bridge's target.

    A lane forwards nothing to itself, whatever partitions it owns; a single lane needs no forward topic.
    """
    for lanes, partition, forwarded in ((0, 0, True), (1, 0, False), (2, 1, False), (2, 0, True)):
        sizes: dict[str, int | None] = {FORWARD: 1_000}
        record = _published(1_000, partition=partition)

        assert (f"{FORWARD} takes" in _room(sizes, lanes=lanes).refusal(record)) is forwarded
        assert _room(sizes, bridged=True, lanes=lanes).refusal(record) == ""
        own = ORDERS.model_copy(update={"lanes": lanes})
        assert (FORWARD in outputs("app", own, [])) is (lanes != 1)
        assert FORWARD not in outputs("app", own, [], bridged=True)


def test_parts() -> None:
    """Each part of a transaction is compared with the accepted topic of its address."""
    parts = [{"key": "a", "value": "v"}, {"address": "payments", "key": "b", "value": "v" * 1_000}]
    headers = [("_RF_TX", b"json/1")]
    envelope = _published(0, value=json.dumps({"parts": parts}).encode(), headers=headers)
    room = _room({"orders.accepted": 500, "payments.accepted": 1_000})

    assert room.refusal(envelope).startswith("part 2/2: ")
    assert "payments.accepted takes" in room.refusal(envelope)
    assert _room({"orders.accepted": 500}).refusal(envelope) == ""
    assert room.refusal(envelope._replace(value=b"{}")) == ""
