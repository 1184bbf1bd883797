"""The first look at a cluster."""

import socket
import sys
import time
from pathlib import Path

import pytest

from app import cli
from ringfence_kafka.auth import reachability
from ringfence_kafka.config.kafka import KafkaSettings
from ringfence_kafka.errors import BrokerUnavailableError
from ringfence_kafka.process import command_line


def test_somebody_listens() -> None:
    """One listening address of several is enough."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        reachability.require_listener(KafkaSettings(bootstrap_servers=f"127.0.0.1:1, 127.0.0.1:{port}"))


@pytest.mark.parametrize(
    ("servers", "reason"),
    [
        ("127.0.0.1:1,127.0.0.1:2", "Connection refused"),
        ("broker.invalid:9092", "cannot resolve host 'broker.invalid'"),
    ],
)
def test_nobody_listens(servers: str, reason: str) -> None:
    """A cluster without a listener is reported at once, in the words of every verb."""
    began = time.monotonic()

    with pytest.raises(BrokerUnavailableError, match=rf"no broker answers at .*\({reason}\): start it"):
        reachability.require_listener(KafkaSettings(bootstrap_servers=servers))

    assert time.monotonic() - began < 5


def test_who_says_nothing_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow answer does not count as a refusal."""

    def slow(_address: object, _limit: float) -> socket.socket:
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", slow)

    reachability.require_listener(KafkaSettings(bootstrap_servers="127.0.0.1:1"))


@pytest.mark.parametrize("verb", [["reconcile"], ["audit", "orders"]])
def test_verbs_of_spark_look_first(
    verb: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Verbs that use Spark look for a broker before they load its libraries."""
    path = tmp_path / "ringfence.toml"
    path.write_text('[[addresses]]\nname = "orders"\n')
    monkeypatch.setitem(sys.modules, "reconcile.job", None)  # importing it fails
    monkeypatch.setitem(sys.modules, "reconcile.audit.job", None)

    with pytest.raises(SystemExit) as caught:
        command_line.run(
            cli.cli, [*verb, "--config", str(path), "--bootstrap-server", "127.0.0.1:1"], "ringfence"
        )

    assert caught.value.code == 2
    assert (
        "ringfence: no broker answers at kafka.bootstrap_servers = '127.0.0.1:1' (Connection refused)"
        in capsys.readouterr().err
    )
