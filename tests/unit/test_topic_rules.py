from typing import Any

from app.topic_rules import CHANGELOG_CONFIG, TopicDescription, compare, missing, required
from conf.load import validate
from conf.settings import Settings


def _settings(**keys: Any) -> Settings:
    return validate({"addresses": [{"name": "orders"} | keys]})


def _topics(**changes: tuple[int, str | None]) -> dict[str, TopicDescription]:
    """The three topics of ``orders`` as Ringfence makes them, save for the changes."""
    found: dict[str, tuple[int, str | None]] = {
        "orders": (4, "delete"),
        "accepted": (4, "delete"),
        "changelog": (4, "compact"),
    }
    found |= changes
    names = {"orders": "orders", "accepted": "orders.accepted", "changelog": "ringfence-orders-changelog"}
    return {
        names[role]: TopicDescription(
            names[role], partitions, None if policy is None else frozenset(policy.split(","))
        )
        for role, (partitions, policy) in found.items()
    }


def test_well() -> None:
    """Topics as Ringfence makes them have no faults."""
    findings = compare(_settings(), _topics())

    assert findings.faults == []
    assert findings.notes == []


def test_each_missing_topic_is_a_fault() -> None:
    """Whichever topic is missing, there is one fault, it names that topic, and the way to create it."""
    for name in required(_settings()):
        topics = _topics()
        del topics[name]

        (fault,) = compare(_settings(), topics).faults

        assert fault.startswith(f"{name} (")
        assert "topics create" in fault


def test_compacted_input() -> None:
    """Compaction would delete messages of a group: refused on the input topic, also beside retention."""
    for policy in ("compact", "compact,delete"):
        (fault,) = compare(_settings(), _topics(orders=(4, policy))).faults

        assert fault.startswith(f"orders (input topic of orders) has cleanup.policy={policy}")
        assert "set cleanup.policy=delete" in fault


def test_compacted_accepted() -> None:
    """Compaction is refused on the accepted topic, too."""
    (fault,) = compare(_settings(), _topics(accepted=(4, "compact"))).faults

    assert fault.startswith("orders.accepted (accepted topic of orders) has cleanup.policy=compact")


def test_changelog_with_retention() -> None:
    """Retention would delete duplicate IDs: a changelog is compacted and nothing else."""
    for policy in ("delete", "compact,delete"):
        (fault,) = compare(_settings(), _topics(changelog=(4, policy))).faults

        assert fault.startswith(
            f"ringfence-orders-changelog (changelog of orders) has cleanup.policy={policy}"
        )
        assert fault.endswith("set cleanup.policy=compact")


def test_changelog_of_another_size() -> None:
    """A lane without its changelog partition cannot work: counts must be equal, whatever the configuration says."""
    (fault,) = compare(_settings(partitions=3), _topics(changelog=(3, "compact"))).faults

    assert "has 3 partitions, orders has 4" in fault


def test_configured_count_differs() -> None:
    """An existing topic is used as it is: a count that differs from the configuration is a note and no fault."""
    findings = compare(_settings(partitions=7), _topics())

    assert findings.faults == []
    assert findings.notes == [
        "orders has 4 partitions, the configuration says partitions = 7: an existing topic is used as it is"
    ]


def test_untold_configuration() -> None:
    """What the cluster does not tell is not taken for well."""
    for role in ("orders", "accepted", "changelog"):
        (fault,) = compare(_settings(), _topics(**{role: (4, None)})).faults

        assert "DescribeConfigs" in fault


def test_changelog_follows_the_input_as_it_is() -> None:
    """The changelog gets the partition count of the input topic that exists, the accepted topic that configured."""
    topics = {"orders": TopicDescription("orders", 3, frozenset({"delete"}))}

    plans = missing(_settings(partitions=5, replication_factor=2), topics, brokers=3)

    assert [(plan.name, plan.partitions, plan.replication_factor, plan.config) for plan in plans] == [
        ("orders.accepted", 5, 2, {}),
        ("ringfence-orders-changelog", 3, 2, CHANGELOG_CONFIG),
    ]


def test_replicas() -> None:
    """replication_factor = 0 is the smaller of 3 and the number of brokers."""
    for brokers, expected in ((1, 1), (2, 2), (3, 3), (9, 3)):
        plans = missing(_settings(), {}, brokers)

        assert [plan.replication_factor for plan in plans] == [expected] * 3


def test_nothing_missing() -> None:
    """Existing topics are left alone, whatever they are like."""
    assert missing(_settings(partitions=9), _topics(changelog=(1, "delete")), brokers=1) == []
