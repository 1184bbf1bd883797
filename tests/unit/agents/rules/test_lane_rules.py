"""Statements of workers about their rules, and the consequences of a difference: pure."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from agents.rules import lane_rules
from agents.rules.agreement import SETTLE_S, Agreement
from agents.rules.lane_rules import Limits, differences, limits_of, recorded_limits, rules_fault, rules_of
from agents.rules.member_statements import KEY, Statement, decode, encode, own_statement, unlike_limits
from app.commands.rings.adopt import forgets
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.groups.static_members import Member
from tables.codec import Meta
from tables.promise import Promise


def _settings(instance: str = "w", **keys: Any) -> Settings:
    orders = {"name": "orders", "transaction_addresses": ["stock"], **keys}
    addresses = [orders, {"name": "stock", "group_header": "g"}]
    return validate({"app": {"instance": instance}, "addresses": addresses})


def _address(**keys: Any) -> AddressSettings:
    return _settings(**keys).addresses[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"duplicate_id_from": "value"},
        {"duplicate_id_from": ["header:a", "header:b"]},
        {"duplicate_id_headers": ["b", "a"]},
        {"group_header": "x"},
        {"partitioner": "crc32"},
        {"input_topic": "elsewhere"},
        {"accepted_topic": "elsewhere"},
    ],
)
def test_what_changes_verdicts_is_a_rule(changed: dict[str, Any]) -> None:
    """A setting that changes verdicts is a rule; the error names both values and the way out."""
    own = rules_of(_address(duplicate_id_headers=["a", "b"]))
    other = rules_of(_address(**{"duplicate_id_headers": ["a", "b"], **changed}))
    (key,) = changed
    fault = rules_fault("orders", own, other)

    assert rules_fault("orders", own, own) is None
    assert [name for name, *_ in differences(own, other)] == [key]
    assert fault is not None
    assert key in fault
    assert "'ringfence rings adopt orders'" in fault


def test_what_changes_no_verdict_is_none() -> None:
    """Sizes, ages and other topics are not rules, and neither is a key that another one makes ineffective."""
    own = rules_of(_address(duplicate_id_from="key"))
    other = _address(
        duplicate_id_from="key", duplicate_id_headers=["x"], id_cache_size=1, id_max_age=2, persist_id_cache=False,
        duplicates="divert", quarantine_topic="q", partitions=9,
    )  # fmt: skip

    assert rules_of(other) == own


def test_rules_of_target_addresses() -> None:
    """The rules of target addresses, by which parts of transactions are read, are compared where both sides list the address."""
    settings = _settings()
    orders, stock = settings.addresses
    own = rules_of(orders, [stock])
    other = rules_of(orders, [stock.model_copy(update={"group_header": "h"})])

    assert differences(own, other) == [("stock: group_header", "g", "h")]
    assert differences(rules_of(orders), own) == differences(own, rules_of(orders)) == []
    assert "stock: input_topic" not in own


def test_recorded_limits() -> None:
    """A ring with a promise has room for id_cache_size_max. Its record says all that a file says, to the millisecond."""
    aged = Meta(5, 0, 0, {}, {}, "i", persistent=False, max_age_ms=12)
    assert recorded_limits(aged) == Limits(5, limits_of(_address(id_max_age=0.0123456)).id_max_age, False)
    assert limits_of(lane_rules.with_limits(_address(id_max_age=3), recorded_limits(aged))) == Limits(
        5, 0.012, False
    )
    own = limits_of(_address(id_cache_size=2, id_cache_size_max=9, id_min_age="1h"))
    assert (own.capacity, own.promise) == (9, Promise(2, 3_600_000))
    assert (limits_of(_address()).capacity, limits_of(_address()).promise) == (20_000, None)

    meta = Meta(9, 0, 0, {}, {}, "i", promise=Promise(2, 3_600_000, 77, 5))
    assert recorded_limits(meta) == own
    assert limits_of(lane_rules.with_limits(_address(), own)) == own
    one, other = (
        own_statement(_settings(name, id_cache_size_max=30_000, id_min_age=age))
        for name, age in (("a", 60), ("b", "2m"))
    )
    assert unlike_limits("orders", [one, other]) == ["id_min_age: a has 60, b has 120"]


def test_statements_survive_the_wire() -> None:
    """Addresses with equal rules share one statement, because a thousand of them must fit the group's metadata."""
    many = validate({"app": {"instance": "w"}, "addresses": [{"name": f"a{n}"} for n in range(1_000)]})
    encoded = json.dumps({KEY: encode(own_statement(many))}).encode()
    settings = _settings(group_header="x")
    told = json.dumps({"url": "", KEY: encode(own_statement(settings))}).encode()

    assert decode(told, "m") == own_statement(settings)
    assert decode(encoded, "m") == own_statement(many)
    assert len(encoded) < 20_000
    malformed = b'{"ringfence": {"worker": "w", "addresses": [{}]}}'
    for strange in (b"", b"{}", b"\xff", b"[]", b'{"ringfence": 1}', malformed, None):
        assert decode(strange, "m") == Statement("m", None)


def test_who_says_what() -> None:
    """All workers of an address must state the same limits. One without the address does not count, one without a statement disagrees."""
    large = own_statement(_settings("a"))
    small = own_statement(_settings("b", id_cache_size=50, id_max_age=1.5))
    elsewhere = [{"name": "else", "id_cache_size": 1}]
    other = own_statement(validate({"app": {"instance": "c"}, "addresses": elsewhere}))
    twin = small._replace(worker="a")

    assert unlike_limits("orders", [large, large, other]) == []
    assert unlike_limits("orders", [small, other, large]) == [
        "id_cache_size: a has 20000, b has 50", "id_max_age: a has 0, b has 1.5",
    ]  # fmt: skip
    assert unlike_limits("orders", [large, twin])[0] == "id_cache_size: a has 20000, a has 50"
    silent = unlike_limits("orders", [large, Statement("consumer-1", None)])
    assert [name.partition(":")[0] for name in silent] == ["consumer-1 states no limits"]


async def test_a_group_that_rebalances_agrees_on_nothing() -> None:
    """A group that rebalances counts as a disagreement, because a ring must not shrink meanwhile."""

    async def rebalancing() -> list[Member]:
        return [Member("m", None, None)]

    agreement = Agreement(_settings(), rebalancing)
    alone = Agreement(_settings())

    assert await agreement.on_limits("orders") == ["the group does not report the limits of its members"]
    assert await agreement.unlike_rules("orders", {}) is None
    assert await alone.on_limits("orders") == []
    await agreement.stop()
    await alone.stop()


async def test_agreement_after_a_disagreement_settles() -> None:
    """Agreement counts only some time after a disagreement: a worker with an older file may be alone for a moment."""
    other = json.dumps({KEY: encode(own_statement(_settings("b", id_cache_size=50)))}).encode()
    members = [Member("m", None, SimpleNamespace(user_data=other))]
    now = 100.0

    async def ask() -> list[Member]:
        return members

    agreement = Agreement(_settings("a"), ask, lambda: now)
    apart = await agreement.on_limits("orders")
    members.clear()
    soon = await agreement.on_limits("orders")
    now += SETTLE_S - 1
    await agreement.refresh()
    shown = dict(agreement.by_address)
    now += 1
    settled = await agreement.on_limits("orders")
    await agreement.refresh()

    assert apart == ["id_cache_size: a has 20000, b has 50"]
    assert soon == shown["orders"] == ["their agreement is younger than 20 s"]
    assert settled == []
    assert agreement.by_address == {}
    assert await Agreement(_settings("a"), ask, lambda: now).on_limits("orders") == []
    await agreement.stop()


@pytest.mark.parametrize(
    ("before", "after", "forgotten"),
    [
        ({"duplicate_id_from": "key"}, {"duplicate_id_from": "header"}, True),
        ({"duplicate_id_from": "header:a"}, {"duplicate_id_from": ["header:a", "key"]}, True),
        ({"duplicate_id_headers": ["a"]}, {"duplicate_id_headers": ["b", "a"]}, False),
        ({"duplicate_id_headers": ["a", "b"]}, {"duplicate_id_headers": ["a"]}, True),
        ({"stock: duplicate_id_from": "key"}, {"stock: duplicate_id_from": "value"}, True),
        ({"partitioner": "crc32"}, {"partitioner": "murmur2"}, False),
        ({}, {"duplicate_id_from": "header"}, False),
    ],
)
def test_which_change_forgets(before: dict[str, Any], after: dict[str, Any], *, forgotten: bool) -> None:
    """A change forgets IDs only if an old ID may equal the new ID of another message."""
    assert forgets(before, after) is forgotten


def test_file_with_other_rules() -> None:
    """Before any worker starts with a file, the check names each rule that its lanes would refuse; a rule of one side only is none."""
    recorded = {"duplicate_id_from": "header", "group_header": "", "a rule of later": 1}

    assert (
        lane_rules.file_fault("orders", recorded, {"duplicate_id_from": "header", "partitioner": "murmur2"})
        is None
    )
    assert lane_rules.file_fault("orders", {}, {"duplicate_id_from": "key"}) is None
    assert lane_rules.file_fault(
        "orders", recorded, {"duplicate_id_from": ["header:a", "key"], "group_header": ""}
    ) == (
        'orders has other rules in this file than its lanes: duplicate_id_from = "header" in the record of its lanes and ["header:a", "key"] '
        "in this file. No worker with this file opens them. Use the file of the workers; or, to change the rule on purpose, stop all workers and "
        "run 'ringfence rings adopt orders'"
    )
