from pathlib import Path

import pytest

from app.embedded import command, server_files
from app.embedded.command import run_broker
from ringfence_kafka.errors import ConfigurationError


def test_pairs() -> None:
    """A value is kept whole, with equals signs and blanks, and may be empty. A malformed pair is refused with an example."""
    given = ["log.retention.ms=60000", " sasl.jaas.config = a b=c ;", "metric.reporters="]
    read = {"log.retention.ms": "60000", "sasl.jaas.config": " a b=c ;", "metric.reporters": ""}
    assert command.parse_properties(given) == read
    said = r"is not KEY=VALUE on one line: write for example --property log"
    for pair in ("", "log.retention.ms", "=60000", "a b=1", "a=1\nb=2", "lög=1"):
        with pytest.raises(ConfigurationError, match=said):
            command.parse_properties([pair])


def test_what_the_broker_sets_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A property for listeners, data folders or the single node is refused before a broker is started."""
    monkeypatch.setattr("app.embedded.command.EmbeddedBroker", lambda *_, **__: pytest.fail("a broker"))
    ours = server_files.server_properties("127.0.0.1", 1, 2, {}).splitlines()
    owned = {key for key, _, _ in (line.partition("=") for line in ours)} & set(command.OWNED)

    assert owned == {
        "process.roles", "node.id", "controller.quorum.voters", "controller.listener.names", "listeners",
        "advertised.listeners", "listener.security.protocol.map", "log.dirs",
    }  # fmt: skip
    for key, way_out in {"listeners": "--port", "log.dirs": "--dir", "node.id": "one node"}.items():
        with pytest.raises(ConfigurationError, match=f"--property {key} cannot be set, .*{way_out}"):
            run_broker(0, tmp_path, [f"{key}=x"])
    with pytest.raises(ConfigurationError, match=r"num\.partitions is given twice, with '1' and '2'"):
        command.parse_properties(["num.partitions=1", "num.partitions=2"])


def test_unknown_ones() -> None:
    """A property counts as unknown if Kafka hides its value and it is not a password."""
    described = {
        "log.retention.ms": False,
        "log.retention.mss": True,
        "ssl.key.password": True,
        "foo.bar": True,
    }
    with pytest.raises(ConfigurationError) as refused:
        command.require_known([*described, "listener.name.tls.ssl.client.auth"], described)

    assert str(refused.value) == (
        "--property: Kafka has no property log.retention.mss (did you mean log.retention.ms?), foo.bar: correct or remove it"
    )
