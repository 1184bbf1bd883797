"""Why a broker does not let the run in, from what librdkafka says: it never says it in one place."""

import time

import pytest
from confluent_kafka import KafkaError

from reconcile.cluster import access
from reconcile.cluster.admin import Admin
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import BrokerUnavailableError

PLAIN = KafkaSettings(bootstrap_servers="kafka-1:9092, kafka-2:9092")
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "2/2 brokers are down")


AWAY = "Connect to ipv4#10.0.0.1:9092 failed: Connection refused"


def test_nobody_is_there() -> None:
    for code, text, said in (
        # The configured addresses, and the system's reason for the first that failed.
        (
            KafkaError._TRANSPORT, f"kafka-1:9092/bootstrap: {AWAY} (after 0ms in state CONNECT)",
            "no broker answers at kafka.bootstrap_servers = 'kafka-1:9092, kafka-2:9092' (Connection refused): start it",
        ),
        # A broker that was reached names itself in a way that leads nowhere: no address of the configuration is at fault.
        (
            KafkaError._RESOLVE,
            "inner-1:29092/1: Failed to resolve 'inner-1:29092': Name or service not known (after 3ms in state CONNECT)",
            "(inner-1:29092, which the brokers advertise: Failed to resolve 'inner-1:29092'",
        ),
    ):  # fmt: skip
        assert said in str(access.unreachable(PLAIN, [KafkaError(code, text), DOWN]))


def test_another_protocol() -> None:
    """The broker that was asked is named, also where another one is merely away."""
    for code, text in (
        (KafkaError._BAD_MSG, "kafka-2:9092/bootstrap: Receive failed: Invalid response size 1213486160 (0..100000000)"),
        (KafkaError._TRANSPORT, "ssl://kafka-2:9092/bootstrap: SSL handshake failed: Disconnected: closed by peer"),
    ):  # fmt: skip
        away = KafkaError(KafkaError._TRANSPORT, f"kafka-1:9092/bootstrap: {AWAY}")
        error = access.unreachable(PLAIN, [away, KafkaError(code, text), DOWN])

        assert str(error) == (
            "the broker at kafka-2:9092 denies access: it closes the connection: check that the port "
            "speaks kafka.security_protocol = 'PLAINTEXT'"
        )


def test_the_clients_meet_nobody() -> None:
    """The absence of every broker is reported in a moment, for one server and for several."""
    for servers in ("127.0.0.1:1", "127.0.0.1:1,127.0.0.1:2"):
        begun = time.monotonic()
        with pytest.raises(
            BrokerUnavailableError, match=r"^no broker answers at .*\(Connection refused\): start it"
        ):
            Admin(KafkaSettings(bootstrap_servers=servers), "group").connect()
        assert time.monotonic() - begun < 5
