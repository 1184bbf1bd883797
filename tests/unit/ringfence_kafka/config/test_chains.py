from typing import Any

import pytest

from app.commands.topics.required_topics import compare, missing, required
from reconcile.run.history.cut import Position, chained_key, positions_of
from ringfence_kafka.admin.topics import Described, TopicDescription
from ringfence_kafka.config import chains
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import ConfigurationError


def _chained(*pairs: tuple[str, str], **keys: Any) -> Settings:
    """Addresses that each read what the other of the pair accepts; an empty name: a topic of its own."""
    entries = [
        {"name": name, **({"input_topic": f"{feeder}.accepted"} if feeder else {})} for name, feeder in pairs
    ]
    return validate({"addresses": entries, **keys})


def test_the_order_of_a_chain() -> None:
    settings = _chained(("c", "b"), ("x", ""), ("b", "a"), ("a", ""))

    assert [address.name for address in chains.upstream_first(settings.addresses)] == ["a", "b", "c", "x"]
    assert chains.upstream("c", settings.addresses) == ("b", "a")


@pytest.mark.parametrize(
    ("pairs", "fault"),
    [
        ([("a", "a")], "addresses: 'a' -> 'a' is a cycle: "),
        ([("z", "b"), ("a", "c"), ("b", "a"), ("c", "b")], "addresses: 'b' -> 'c' -> 'a' -> 'b' is a cycle: "),
        ([("a", ""), ("b", "a"), ("c", "a")], r"'b' and 'c' have the input topic 'a\.accepted'"),
    ],
)  # fmt: skip
def test_a_cycle_is_refused_with_its_path(pairs: list[tuple[str, str]], fault: str) -> None:
    """A cycle is refused with its path, because messages would circulate forever. A second reader is refused too."""
    with pytest.raises(ConfigurationError, match=fault):
        _chained(*pairs)


@pytest.mark.parametrize(
    "second",
    [{"input_topic": "a.quarantine"}, {"accepted_topic": "a.accepted"}, {"input_topic": "a_accepted"}],
)
def test_other_topics_with_two_roles_are_refused(second: dict[str, str]) -> None:
    """An accepted topic is the input of one address; no other role is shared."""
    with pytest.raises(ConfigurationError, match="rename one"):
        validate({"addresses": [{"name": "a"}, {"name": "b", **second}]})


MEMBERS = [{"name": name, "bootstrap_servers": f"{name}:9092"} for name in ("x", "y")]


@pytest.mark.parametrize(
    ("table", "entry", "fault"),
    [
        ("bridges", {"source_topic": "elsewhere", "target_address": "b"}, "input topic of 'b' is a.accepted, the accepted topic of 'a'"),
        ("bridges", {"source_topic": "b.accepted", "target_address": "a"}, "forward b.accepted to a, from which b makes it, forever"),
        ("cluster_connections", {"this": "x", "addresses": ["*"], "members": MEMBERS}, "leave 'b' out of its addresses"),
    ],
)  # fmt: skip
def test_bridges_into_a_chain(table: str, entry: dict[str, Any], fault: str) -> None:
    """A bridge writes no topic that workers write, here or in another cluster, and closes no circle within one cluster."""
    with pytest.raises(ConfigurationError, match=fault):
        _chained(("a", ""), ("b", "a"), **{table: [{"name": "c", **entry}]})


def test_topics_of_a_chain_are_planned_once() -> None:
    """A chained input is created as the accepted topic that it is, with as many partitions as that."""
    settings = _chained(("b", "a"), ("a", ""), address_defaults={"partitions": 3})
    fed, feeder = settings.addresses
    fed = fed.model_copy(update={"partitions": 7})
    settings = settings.model_copy(update={"addresses": (fed, feeder)})
    plans = {setting.name: setting for setting in missing(settings, {}, brokers=1)}

    assert sorted(plans) == sorted(required(settings))
    assert {plan.partitions for name, plan in plans.items() if name != "ringfence-journal"} == {3}
    assert plans["a.accepted"].config["message.timestamp.after.max.ms"] == str(2**63 - 1)


POSITION, OTHER = Position("id", (0,), (5,)), Position("id", (0,), (9,))
KEY = chained_key("a.accepted")
CHAINED = {"a.accepted": OTHER, KEY: POSITION}


@pytest.mark.parametrize(
    ("now", "kept", "rules", "expected"),
    [
        # It was an input of its own, and is fed by an address now.
        ([("a", ""), ("b", "a")], {"a.accepted": POSITION}, ["b"], {"a.accepted": POSITION, KEY: POSITION}),
        # Another address wrote it already: nobody has judged it as an input.
        ([("a", ""), ("b", "a")], {"a.accepted": POSITION}, ["a"], {"a.accepted": POSITION}),
        # It was chained, and the address that fed it is gone.
        ([("b", "a")], CHAINED, ["a", "b"], {"a.accepted": POSITION}),
        # Nothing has changed.
        ([("a", ""), ("b", "a")], CHAINED, ["a", "b"], CHAINED),
    ],
)
def test_positions_when_a_chain_is_made_or_broken(
    now: list[tuple[str, str]], kept: dict[str, Position], rules: list[str], expected: dict[str, Position]
) -> None:
    """A run continues from where the input was judged, and not from where an accepted topic was read to."""
    stated = {"a": {"accepted_topic": "a.accepted"}, "b": {"input_topic": "a.accepted"}}
    found = positions_of(_chained(*now).addresses, kept, {rule: stated[rule] for rule in rules})

    assert found == expected


def test_a_topic_of_two_addresses_is_checked_for_both() -> None:
    """Records deleted by compaction are missing in the one's accepted topic and in the other's input."""
    settings = _chained(("a", ""), ("b", "a"))
    topics = {
        name: TopicDescription(name, 4, {"cleanup.policy": "compact" if "changelog" in name else "delete"})
        for name in required(settings)
    }
    compacted = {"cleanup.policy": "compact", "retention.ms": "60000"}
    topics["a.accepted"] = TopicDescription("a.accepted", 4, compacted)
    findings = compare(settings, Described(topics, frozenset()))

    assert [len(findings.by_address[name]) for name in ("a", "b")] == [1, 1]
    assert "(accepted topic of a) has cleanup.policy=compact" in findings.by_address["a"][0]
    assert "(input topic of b) has cleanup.policy=compact" in findings.by_address["b"][0]
