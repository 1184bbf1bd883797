"""Bridges into and out of secured clusters: TLS at one side, a login at the other, and no more rights than docs/security.md lists."""

from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from tests.support import kafka
from tests.support.bridges import processes
from tests.support.bridges.processes import BridgeProcess, messages, numbers
from tests.support.brokers.acls import Right
from tests.support.brokers.secured import PASSWORD, PASSWORD_VARIABLE, Access, SecuredBroker
from tests.support.worker import run_verb, table

LITERAL: Final = ResourcePatternType.LITERAL
TOPIC: Final = ResourceType.TOPIC


def _rights(name: str) -> dict[str, Right]:
    """Rights that docs/security.md lists, by purpose."""
    return {
        "source": (TOPIC, f"{name}-source", LITERAL, AclOperation.READ),
        "group": (ResourceType.GROUP, f"{name}-app-bridge-{name}", LITERAL, AclOperation.READ),
        "target": (TOPIC, f"{name}-target", LITERAL, AclOperation.WRITE),
        "target's settings": (TOPIC, f"{name}-target", LITERAL, AclOperation.DESCRIBE_CONFIGS),
        "quarantine": (TOPIC, f"{name}.quarantine", LITERAL, AclOperation.WRITE),
        "quarantine's settings": (TOPIC, f"{name}.quarantine", LITERAL, AclOperation.DESCRIBE_CONFIGS),
        "quarantine's making": (TOPIC, f"{name}.quarantine", LITERAL, AclOperation.CREATE),
    }


def _configure(secured: SecuredBroker, folder: Path, name: str, source: Access, target: Access) -> Path:
    kafka.create_topics(secured.plaintext, {f"{name}-source": (1, {}), f"{name}-target": (1, {})})
    own = {"name": name, "source_topic": f"{name}-source", "target_address": f"{name}-target"}
    config = folder / "ringfence.toml"
    config.write_text(
        table("[app]", {"id": f"{name}-app", "data_dir": str(folder / "data")})
        + table("[[bridges]]", own)
        + table("[bridges.source]", source.section)
        + table("[bridges.target]", target.section)
    )
    return config


def _forwards(secured: SecuredBroker, config: Path, name: str, environment: dict[str, str]) -> str:
    """Run the bridge until all is forwarded; return its log."""
    kafka.send(
        secured.plaintext, f"{name}-source", [*messages(50), messages(1)[0]._replace(value=b"x" * 900_000)]
    )
    with BridgeProcess(config, name, environment=environment) as process:
        process.wait_ready()
        processes.confirmed_at(secured.plaintext, f"{name}-app-bridge-{name}", f"{name}-source", [51])
        assert process.stop() == 0
    return process.log()


def test_tls_to_a_login(secured: SecuredBroker, tmp_path: Path) -> None:
    """B16: a client certificate at the source and a password at the target work; the password is nowhere in the log."""
    name = kafka.unique("b16")
    config = _configure(secured, tmp_path, name, secured.tls, secured.scram)
    log = _forwards(secured, config, name, dict(secured.scram.environment))

    assert sorted(numbers(kafka.read_all(secured.plaintext, f"{name}-target", 1)[:50])) == list(range(50))
    assert PASSWORD not in log


def test_least_rights(secured: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bridge with only the rights of docs/security.md forwards, and status shows its position."""
    name = kafka.unique("least")
    secured.add_user(name, _rights(name).values())
    access = secured.scram.with_user(name)
    config = _configure(secured, tmp_path, name, access, access)
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    _forwards(secured, config, name, dict(access.environment))

    assert len(kafka.read_all(secured.plaintext, f"{name}-target", 1)) == 51
    assert processes.status(config, code=0)["bridges"][name]["partitions"][0]["lag"] == 0


@pytest.mark.parametrize(
    ("lacking", "said"),
    [
        ("source", "topic {}-source: this user may not read it: allow Read on it"),
        ("group", "group {0}-app-bridge-{0}: this user may not use it: allow Read on it"),
        ("target", "topic {}-target: this user may not write to it: allow Write and DescribeConfigs on it"),
        (
            "target's settings",
            (
                "{}-target: the cluster does not report its configuration: allow this user DescribeConfigs on "
                "the topic"
            ),
        ),
    ],
)
def test_missing_right(
    secured: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str, said: str
) -> None:
    """The bridge names each missing right before it reads anything, and its exit code is 2."""
    name = kafka.unique("lacking")
    secured.add_user(name, [right for what, right in _rights(name).items() if what != lacking])
    access = secured.scram.with_user(name)
    config = _configure(secured, tmp_path, name, access, access)
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    done = run_verb("bridge", "--web-port", "0", "--config", str(config), check=False)

    assert done.returncode == 2
    assert said.format(name) in done.stderr


def test_wrong_password(secured: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bridge with a wrong password reports that, without the password, and ends: it does not take the cluster for away."""
    name = kafka.unique("wrong")
    config = _configure(secured, tmp_path, name, secured.tls, secured.scram)
    monkeypatch.setenv(PASSWORD_VARIABLE, "not-the-horse")
    done = run_verb("bridge", "--web-port", "0", "--config", str(config), check=False)

    assert done.returncode == 2
    assert "target: the broker at" in done.stderr
    assert "refuses the password" in done.stderr
    assert "not-the-horse" not in done.stderr
