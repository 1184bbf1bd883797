import socket
import time
from unittest.mock import Mock

import pytest

from ringfence_kafka.auth import reachability
from ringfence_kafka.config.kafka import KafkaSettings
from ringfence_kafka.errors import BrokerUnavailableError


def test_somebody_listens() -> None:
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
    monkeypatch.setattr(socket, "create_connection", Mock(side_effect=TimeoutError))

    reachability.require_listener(KafkaSettings(bootstrap_servers="127.0.0.1:1"))
