import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.commands.topics import topics
from app.embedded.broker import EmbeddedBroker
from ringfence_client.partition.topics import prepare
from ringfence_kafka.admin.cluster import Cluster
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import TopicError
from ringfence_kafka.protocol import wire_names
from tests.support.kafka import create_topics, delete_topics, topic_config
from tests.support.kafka import topics as topics_there
from tests.support.worker import WorkerProcess, configure, wait_for


def _settings(bootstrap: str, address: str, **keys: Any) -> Settings:
    """Return settings of an address in an app of its own, so that none finds the other's journal."""
    return validate(
        {
            "kafka": {"bootstrap_servers": bootstrap},
            "app": {"id": f"topics-{address}"},
            "addresses": [{"name": address} | keys],
        }
    )


def test_lines_and_exit_codes(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each topic and each fault has a line; check exits with 1 before create and with 0 after it."""
    settings = _settings(bootstrap, "lines")

    assert topics.check(settings) == 1
    faults = capsys.readouterr().out.splitlines()
    names = [
        "lines",
        "lines.accepted",
        "lines.quarantine",
        "topics-lines-lines-changelog",
        "topics-lines-lines-forward",
        "topics-lines-journal",
    ]
    assert sorted(line.split()[1] for line in faults) == sorted(names)
    assert topics.create(settings) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"created  {name}  {'1 partition' if name.endswith('journal') else '4 partitions'}" for name in names
    ]
    assert topics.create(settings) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["exists"] * 6
    assert topics.check(settings) == 0
    assert capsys.readouterr().out == "ok     6 topics\n"
    state = wire_names.state_topic("topics-lines", "billing", "lines.accepted")
    create_topics(bootstrap, {state: (4, {"cleanup.policy": "delete"})})
    assert topics.check(settings) == 1
    assert f"problem  the state topic {state} has cleanup.policy=delete" in capsys.readouterr().out
    expected = {
        "cleanup.policy": "compact",
        "segment.bytes": str(64 * 2**20),
        "min.cleanable.dirty.ratio": "0.3",
    }
    assert {key: topic_config(bootstrap, "topics-lines-lines-changelog", key) for key in expected} == expected


def test_dry_run_and_documents(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run lists the topics without creating them; create makes exactly these, like the input, and both have a document."""
    create_topics(bootstrap, {"dry": (3, {"retention.ms": "86400000", "max.message.bytes": "2000000"})})
    settings = _settings(bootstrap, "dry", partitions=7)

    assert topics.create(settings, dry_run=True) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "exists        dry  3 partitions"
    assert lines[1].startswith(
        "would create  dry.accepted  3 partitions  1 replicas  max.message.bytes=2065536 "
    )
    assert topics.check(settings, as_json=True) == 1
    assert len(json.loads(capsys.readouterr().out)["faults"]) == 5
    assert topics.create(settings, as_json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert [item["created"] for item in document["topics"]] == [False, *[True] * 5]
    assert document["topics"][1]["config"]["retention.ms"] == "86400000"
    assert topic_config(bootstrap, "dry.accepted", "retention.ms") == "86400000"
    assert topic_config(bootstrap, "dry.accepted", "max.message.bytes") == "2065536"
    assert topics.check(settings, as_json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["ok"], document["faults"], document["by_address"]) == (True, [], {"dry": []})


@pytest.mark.parametrize(
    ("address", "role", "partitions", "policy", "fault"),
    [
        ("f1", "input", 4, "compact", "f1 (input topic of f1) has cleanup.policy=compact"),
        (
            "f2",
            "accepted",
            4,
            "compact,delete",
            "f2.accepted (accepted topic of f2) has cleanup.policy=compact,delete",
        ),
        (
            "f3",
            "changelog",
            4,
            "delete",
            "topics-f3-f3-changelog (changelog of f3) has cleanup.policy=delete",
        ),
        (
            "f4",
            "changelog",
            3,
            "compact",
            "f4 has 4 partitions, it had 3 when its lanes began, as topics-f4-f4-changelog still has",
        ),
    ],
)
async def test_each_fault(
    bootstrap: str, address: str, role: str, partitions: int, policy: str, fault: str
) -> None:
    """Check finds a topic that somebody made wrongly, and nothing else; create leaves it as it is."""
    names = {
        "input": address,
        "accepted": f"{address}.accepted",
        "changelog": f"topics-{address}-{address}-changelog",
    }
    create_topics(bootstrap, {names[role]: (partitions, {"cleanup.policy": policy})})
    settings = _settings(bootstrap, address)

    outcomes = await topics.ensure(settings)

    assert [outcome.name for outcome in outcomes if not outcome.created] == [names[role]]
    (found,) = (await topics.examine(settings)).faults
    assert found.startswith(fault)
    assert ": " in found


async def test_refused_by_the_cluster(bootstrap: str) -> None:
    """The error for more replicas than brokers names the topics, the number of brokers, and the key."""
    settings = _settings(bootstrap, "refused", replication_factor=2)

    with pytest.raises(
        TopicError, match=r"refused was not created .* the cluster has 1 brokers: lower replication_factor"
    ):
        await topics.ensure(settings)


@pytest.mark.parametrize("dry_run", [True, False])
async def test_name_that_the_cluster_refuses(bootstrap: str, *, dry_run: bool) -> None:
    """One refused name keeps all topics from being created, and a dry run reports the same.

    Kafka takes no topic that differs from another in dots and underscores alone: the remedy is another name.
    """
    name = f"dots.and.{dry_run}"
    create_topics(bootstrap, {f"{name}.quarantine".replace(".", "_"): (1, {})})
    settings = _settings(bootstrap, name)

    with pytest.raises(
        TopicError,
        match=r"^no topic was created, .*\n\S+ was not .* collides .*: choose another name of the address",
    ):
        await topics.ensure(settings, dry_run=dry_run)
    assert not any(topic.startswith(name) for topic in topics_there(bootstrap))


def test_more_replicas_than_brokers(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A replication factor that no new topic can have is a fault, though all topics are there."""
    assert topics.create(_settings(bootstrap, "replicas")) == 0
    capsys.readouterr()

    assert topics.check(_settings(bootstrap, "replicas", replication_factor=99)) == 1
    assert capsys.readouterr().out.startswith(
        "problem  replication_factor = 99 (replicas): the cluster shows 1 broker, and creates no topic with more replicas: lower it"
    )


@pytest.fixture(scope="module")
def generous(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield a broker that creates topics when asked, which is Kafka's default, and takes large messages."""
    properties = {"auto.create.topics.enable": "true", "message.max.bytes": "4000000"}
    with EmbeddedBroker(tmp_path_factory.mktemp("generous"), properties=properties) as broker:
        yield broker.bootstrap_servers


def test_nothing_is_created_by_asking(generous: str, tmp_path: Path) -> None:
    """Neither check nor a worker creates topics by asking on a cluster that creates them when asked, which is Kafka's default."""
    assert topics.check(_settings(generous, "ghost")) == 1

    assert not [name for name in topics_there(generous) if "ghost" in name]
    names = ("there", "gone")
    config = configure(tmp_path, generous, "auto", [{"name": name, "partitions": 2} for name in names])
    gone = ["gone", "gone.accepted", "auto-gone-forward"]
    delete_topics(generous, gone)
    with WorkerProcess(config, "w") as process:
        wait_for(lambda: "lane there-1 open" in process.log(), process.log)
        # The first look at all topics follows the assignment; the consumer asks for its own every ten seconds.
        wait_for(lambda: "gone" in process.health()[1].get("faults", {}), process.log)
        assert process.stop() == 0
    assert not set(gone) & topics_there(generous)


async def test_created_sizes_pass_the_check(generous: str) -> None:
    """Topics of a chain, and its consumers' dead letters, take all that comes, even if the cluster takes large messages."""
    names = ["first", "second", "third"]
    settings = validate(
        {
            "kafka": {"bootstrap_servers": generous},
            "addresses": [
                {"name": name, "partitions": 1, "duplicates": "divert"}
                | ({"input_topic": f"{before}.accepted"} if before else {})
                for before, name in zip(["", *names], names, strict=False)
            ],
        }
    )
    await topics.ensure(settings)
    async with Cluster(settings.kafka, "sizes") as cluster:
        letters = [await prepare(settings, address, cluster) for address in settings.addresses]
    findings = await topics.examine(settings)

    assert findings.faults == []
    assert [note for note in findings.notes if "max.message.bytes" in note] == []
    # Each accepted topic of the chain takes more than the one before it.
    assert [letter.message_bytes_max for letter in letters] == [
        4_000_000 + 65_536 * number for number in (1, 2, 3)
    ]
