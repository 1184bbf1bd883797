"""Whether what is published again would be accepted, or come back for its size."""

import json
from typing import Any

import pytest

from app.commands.repair.republished import Published
from app.commands.repair.size_check import Input, SizeCheck, outputs
from ringfence_kafka.admin.topics import TopicDescription
from ringfence_kafka.config.load import validate
from tests.support import kafka

ORDERS, PAYMENTS = validate({"addresses": [{"name": "orders"}, {"name": "payments"}]}).addresses
FORWARD = "app-orders-forward"


def _room(sizes: dict[str, int | None], *, bridged: bool = False, end: int = 7, **address: Any) -> SizeCheck:
    """``sizes``: of a topic None = the cluster does not tell."""
    described = {
        name: TopicDescription(name, 4, None if size is None else {"max.message.bytes": str(size)})
        for name, size in sizes.items()
    }
    own = ORDERS.model_copy(update=address)
    return SizeCheck("app", own, [PAYMENTS], Input("orders", 4, end), described, bridged=bridged)


def _published(size: int, partition: int = 3, **changes: Any) -> Published:
    given = {"partition": partition, "key": kafka.at_home(3, 4), "value": b"v" * size, "headers": []}
    return Published(**{**given, **changes})


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"orders.accepted": 1_000}, "orders.accepted takes max.message.bytes = 1000: it would come back"),
        ({"orders.accepted": 2_000}, ""),
        ({"orders.accepted": None}, ""),
        ({}, ""),
        ({FORWARD: 1_000}, ""),
    ],
)
def test_what_the_accepted_topic_takes(sizes: dict[str, int | None], expected: str) -> None:
    """By its size as it is accepted; of a topic that the cluster does not tell of nothing is said."""
    found = _room(sizes).refusal(_published(1_000))

    assert (expected in found) if expected else found == ""


def test_headers_of_ours_count() -> None:
    """Place and key, which an accepted record has in headers: the same bytes fit, or do not, as in the lane."""
    plain = _room({"orders.accepted": 1_000})
    by_header = _room({"orders.accepted": 1_000}, group_header="g")
    fits = max(index for index in range(1_000) if not plain.refusal(_published(index)))

    assert "1001 bytes" in plain.refusal(_published(fits + 1))
    assert _room({"orders.accepted": 1_000}, end=10).refusal(_published(fits)), "one digit more"
    assert by_header.refusal(_published(fits, headers=[("g", b"other")]))


def test_on_the_way() -> None:
    """What is not at home where it is published must fit the forward topic as well; at a bridge's target that one is not known."""
    sizes: dict[str, int | None] = {FORWARD: 1_000}

    assert f"{FORWARD} takes" in _room(sizes).refusal(_published(1_000, partition=0))
    assert _room(sizes, bridged=True).refusal(_published(1_000, partition=0)) == ""
    assert FORWARD not in outputs("app", ORDERS, [], bridged=True)


def test_parts() -> None:
    """Of a transaction each part, in the accepted topic of its address. What cannot be read is the lane's to tell."""
    parts = [{"key": "a", "value": "v"}, {"address": "payments", "key": "b", "value": "v" * 1_000}]
    headers = [("_RF_TX", b"json/1")]
    envelope = _published(0, value=json.dumps({"parts": parts}).encode(), headers=headers)
    room = _room({"orders.accepted": 500, "payments.accepted": 1_000})

    assert room.refusal(envelope).startswith("part 2/2: ")
    assert "payments.accepted takes" in room.refusal(envelope)
    assert _room({"orders.accepted": 500}).refusal(envelope) == ""
    assert room.refusal(envelope._replace(value=b"{}")) == ""
