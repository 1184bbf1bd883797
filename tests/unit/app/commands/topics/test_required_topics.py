import math
from typing import Any

import pytest

from app.commands.topics import required_topics
from app.commands.topics.required_topics import CHANGELOG_CONFIG, FORWARD_CONFIG, Findings, missing
from ringfence_client.progress.progress_topic import TOPIC_CONFIG
from ringfence_kafka.admin.topics import OUTPUT_CONFIG, Described, TopicDescription
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import TopicError


def compare(settings: Settings, topics: dict[str, TopicDescription], *refused: str) -> Findings:
    return required_topics.compare(settings, Described(topics, frozenset(refused)))


def _settings(**keys: Any) -> Settings:
    return validate({"addresses": [{"name": "orders"} | keys]})


NAMES = {
    "input": "orders",
    "accepted": "orders.accepted",
    "quarantine": "orders.quarantine",
    "duplicates": "orders.duplicates",
    "changelog": "ringfence-orders-changelog",
    "forward": "ringfence-orders-forward",
}
JOURNAL = {"ringfence-journal": TopicDescription("ringfence-journal", 1, {"cleanup.policy": "delete"})}


def _topics(**changes: tuple[int, str | None]) -> dict[str, TopicDescription]:
    """Return the topics of ``orders`` as Ringfence makes them, save for the changes."""
    found: dict[str, tuple[int, str | None]] = dict.fromkeys(NAMES, (4, "delete"))
    found |= {"changelog": (4, "compact")} | changes
    return JOURNAL | {
        NAMES[role]: TopicDescription(
            NAMES[role], partitions, None if policy is None else {"cleanup.policy": policy}
        )
        for role, (partitions, policy) in found.items()
    }


def test_required() -> None:
    """All topics of all addresses are required; a duplicates topic only if duplicates are diverted."""
    addresses = [{"name": "a", "accepted_topic": "x"}, {"name": "b", "duplicates": "divert"}]

    assert required_topics.required(validate({"addresses": addresses})) == [
        "a", "x", "a.quarantine", "ringfence-a-changelog", "ringfence-a-forward",
        "b", "b.accepted", "b.quarantine", "ringfence-b-changelog", "ringfence-b-forward", "b.duplicates",
        "ringfence-journal",
    ]  # fmt: skip
    assert required_topics.required(validate({})) == []


def test_each_missing_topic_is_a_fault() -> None:
    """Each missing topic is one problem with its name and the way to create it.

    A topic that may not be seen may exist, so the error names the permissions and not a command to create it.
    """
    for role, rights in (("input", "Read"), ("accepted", "Write"), ("changelog", "Read and Write")):
        topics, name = _topics(), NAMES[role]
        del topics[name]
        assert compare(_settings(), topics, name).faults == [
            f"topic {name}: this user may not use it as a worker does: allow {rights} on it"
        ]
    for name in (*NAMES.values(), *JOURNAL):
        topics = _topics()
        del topics[name]

        (fault,) = compare(_settings(duplicates="divert"), topics).faults

        assert fault.startswith(f"{name} (")
        assert fault.endswith("run 'ringfence topics create'")


def _fault(**changes: tuple[int, str | None]) -> str:
    (fault,) = compare(_settings(duplicates="divert"), _topics(**changes)).faults
    return fault


@pytest.mark.parametrize("role", NAMES)
def test_cleanup(role: str) -> None:
    """A topic that forgets what it has to keep, or does not say, is one problem, with the fix. As it is made it has none."""
    made = compare(_settings(duplicates="divert"), _topics())
    assert (made.faults, made.notes) == ([], [])
    title, wanted = ("changelog", "compact") if role == "changelog" else (f"{role} topic", "delete")
    for policy in {"compact", "delete", "compact,delete"} - {wanted}:
        fault = _fault(**{role: (4, policy)})
        assert fault.startswith(f"{NAMES[role]} ({title} of orders) has cleanup.policy={policy}")
        assert f"--topic {NAMES[role]} --add-config cleanup.policy={wanted}" in fault
    untold = _fault(**{role: (4, None)})
    assert untold.startswith(f"{NAMES[role]}: ")
    assert "DescribeConfigs" in untold


def test_counts() -> None:
    """Another partition count is one problem. Other than the configured one is a note: a topic is used as it is."""
    forward, changelog = _fault(forward=(3, "delete")), _fault(changelog=(3, "compact"))
    assert forward.startswith(f"{NAMES['forward']} (forward topic of orders) has 3 partitions, orders has 4")
    assert "delete it once its lag is 0, and run 'ringfence topics create'" in forward
    assert changelog.startswith("orders has 4 partitions, it had 3 when its lanes began")
    findings = compare(_settings(partitions=7), _topics())
    assert findings.faults == []
    assert findings.notes == [
        "orders has 4 partitions, the configuration says partitions = 7: an existing topic is used as it is"
    ]


def test_everything_follows_the_input_as_it_is() -> None:
    """Topics created beside an existing input get its partitions.

    Outputs get the cluster's defaults if the input's settings are hidden or it never deletes. No limit becomes smaller.
    """
    kept = {"retention.ms": "77", "retention.bytes": "99"}
    config = {"cleanup.policy": "delete", "max.message.bytes": "5000000", **kept}
    topics = JOURNAL | {"orders": TopicDescription("orders", 3, config)}

    plans = missing(_settings(partitions=5, replication_factor=2, duplicates="divert"), topics, brokers=3)

    larger = {"max.message.bytes": "5065536"}
    output = {**OUTPUT_CONFIG, **larger, **kept}
    assert {(plan.partitions, plan.replication_factor) for plan in plans} == {(3, 2)}
    assert {plan.name: plan.config for plan in plans} == {
        "orders.accepted": output,
        "orders.quarantine": output,
        "orders.duplicates": output,
        "ringfence-orders-changelog": CHANGELOG_CONFIG,
        "ringfence-orders-forward": {**FORWARD_CONFIG, **larger},
    }

    compacted = {"cleanup.policy": "compact", "retention.ms": "7", "max.message.bytes": "9"}
    made, smaller = (
        missing(_settings(), {"orders": TopicDescription("orders", 3, config)}, brokers=1)
        for config in (None, compacted)
    )
    assert {plan.name: plan.config for plan in made}["orders.accepted"] == OUTPUT_CONFIG
    configs = {plan.name: plan.config for plan in smaller}
    assert "retention.ms" not in configs["orders.accepted"]
    assert configs["ringfence-orders-forward"] == FORWARD_CONFIG


@pytest.mark.parametrize(
    ("accepted", "source", "told"),
    [("604800000", "604800000", ""), ("3600000", "604800000", "for 60 minutes"), ("604800000", "-1", "for 7 days"),
     ("-1", "-1", ""), ("-1", "86400000", "")],
)  # fmt: skip
def test_accepted_topic_that_keeps_less(accepted: str, source: str, told: str) -> None:
    """An accepted topic that keeps messages for less time than the input causes a note.

    A topic has no retention limit if none is set, the broker writes its own time, or only compaction deletes.
    """
    topics, kept = _topics(), {"cleanup.policy": "delete", "retention.ms": "5"}
    log_append, compacted = {"message.timestamp.type": "LogAppendTime"}, {"cleanup.policy": "compact"}
    for config in (None, {}, kept | compacted, kept | log_append):
        assert TopicDescription("t", 1, config).retention_ms == math.inf
    for name, retention in (("orders.accepted", accepted), ("orders", source)):
        topics[name] = TopicDescription(name, 4, {"cleanup.policy": "delete", "retention.ms": retention})

    findings = compare(_settings(), topics)

    assert findings.faults == []
    assert [told in note for note in findings.notes] == ([True] if told else [])


def test_topics_of_before() -> None:
    """A progress topic with large segments or late removal of markers causes a note each, with the command.

    A journal that forgets causes a note, because only the reconciliation run needs it.
    """
    for forgets in ({"cleanup.policy": "compact"}, {"retention.ms": "1000"}):
        journal = TopicDescription("ringfence-journal", 1, {"cleanup.policy": "delete"} | forgets)
        of_journal = compare(_settings(), _topics() | {journal.name: journal})
        [(setting, value)] = forgets.items()
        assert of_journal.faults == []
        assert any(f"ringfence-journal has {setting}={value}, " in note for note in of_journal.notes)
    before = {"segment.bytes": 8 * 2**20, "delete.retention.ms": 24 * 3600 * 1000}

    def found(cleaning: dict[str, int]) -> Findings:
        config = {"cleanup.policy": "compact"} | {key: str(value) for key, value in cleaning.items()}
        topic = TopicDescription(PROGRESS, 8, config)
        return compare(_settings(), _topics() | _letters() | {PROGRESS: topic})

    assert found({item: int(TOPIC_CONFIG[item]) for item in before}).notes == []
    assert found(before).faults == []
    for item, note in zip(before, found(before).notes, strict=True):
        assert f"--topic {PROGRESS} --add-config {item}={TOPIC_CONFIG[item]}" in note


PROGRESS = "ringfence-progress"
KEPT = {PROGRESS: TopicDescription(PROGRESS, 50, dict(TOPIC_CONFIG))}


def _letters(**config: str) -> dict[str, TopicDescription]:
    return {"orders.dlq": TopicDescription("orders.dlq", 4, {"cleanup.policy": "delete"} | config)}


def test_topics_of_consumers() -> None:
    """Faults of their topics stop consumers, and no worker."""
    for topics, refused, faults, notes in (
        ({}, (), [], []),
        (KEPT, (), [], ["orders.dlq (dead letters of orders) does not exist: a consumer makes it"]),
        (KEPT, ("orders.dlq",), [], []),
        (KEPT | _letters(**{"cleanup.policy": "compact"}), (),
         ["orders.dlq (dead letters of orders) has cleanup.policy=compact"], []),
        (KEPT | _letters(**{"max.message.bytes": "1000"}), (), [],
         ["orders.dlq (dead letters of orders) has max.message.bytes=1000"]),
        ({PROGRESS: TopicDescription(PROGRESS, 50, {"cleanup.policy": "delete"})} | _letters(), (),
         ["ringfence-progress (progress of consumer groups) has cleanup.policy=delete"], []),
    ):  # fmt: skip
        found = compare(_settings(), _topics() | topics, *refused)

        assert (found.faults, found.fatal) == ([], False)
        for texts, beginnings in ((found.consumers, faults), (found.notes, notes)):
            assert len(texts) == len(beginnings)
            assert all(text.startswith(beginning) for text, beginning in zip(texts, beginnings, strict=True))


@pytest.mark.parametrize(("lanes", "changelog", "forward"), [(0, 6, 6), (1, 1, 0), (4, 4, 4)])
def test_a_partition_for_each_lane(lanes: int, changelog: int, forward: int) -> None:
    """Changelog and forward topic get one partition for each lane, and outputs follow the input.

    More lanes than partitions create no topic, and the error names both ways out. Without a replication_factor there are three replicas, or as many as there are brokers.
    """
    for existing, brokers in (({}, 9), ({"orders": TopicDescription("orders", 6, {})}, 2)):
        settings = _settings(lanes=lanes, partitions=1 if existing else 6)
        plans = missing(settings, existing, brokers)
        planned = {plan.name: plan.partitions for plan in plans}

        with pytest.raises(
            TopicError, match=r"no topic was created: orders has lanes = 7.*Set lanes = 6 or lower, or "
        ):
            missing(_settings(lanes=7, partitions=6), existing, brokers)
        assert {plan.replication_factor for plan in plans} == {min(3, brokers)}
        assert planned.pop("ringfence-journal") == 1
        assert planned.pop(NAMES["changelog"]) == changelog
        assert planned.pop(NAMES["forward"], 0) == forward
        outputs = {NAMES[role] for role in ("input", "accepted", "quarantine")}
        assert planned == dict.fromkeys(outputs - set(existing), 6)
