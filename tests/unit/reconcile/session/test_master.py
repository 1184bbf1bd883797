"""Spark's master is looked at before Spark is: it would try for a minute, and then show a trace."""

import socket
import time

import pytest

from reconcile.session import session
from reconcile.session.master import check
from ringfence_kafka.errors import ConfigurationError, PrerequisiteError


def test_masters() -> None:
    """One reachable master of several is enough."""
    for master in (
        "local",
        "local[*]",
        "local[4]",
        "local[2,3]",
        "local[*, 2]",
        "yarn",
        "k8s://https://nobody:443",
    ):
        check(master)
    with socket.create_server(("127.0.0.1", 0)) as server:
        check(f"spark://127.0.0.1:1,127.0.0.1:{server.getsockname()[1]}")


def test_no_master() -> None:
    """Under spark-submit, a master in the configuration is not used, and not checked."""
    said = r"that is not a master of Spark: write local\[\*\], .*spark://HOST:7077"
    for master in ("", "foo", "local[0]", "spark://", "spark://host", "spark://host:port", "http://h:8080"):
        with pytest.raises(ConfigurationError, match=said):
            check(master)
        with pytest.raises(ConfigurationError, match=said):
            session.required(master, {})
        session.required(master, {"PYSPARK_GATEWAY_PORT": "1"})


def test_nobody_there() -> None:
    for master, fault in (
        ("spark://127.0.0.1:1", "Connection refused"),
        ("spark://[::1]:1,127.0.0.1:2", "Connection refused"),
        ("spark://nobody.invalid:7077", "nobody.invalid"),
    ):
        begun = time.monotonic()

        with pytest.raises(PrerequisiteError, match="no program listens there") as raised:
            check(master)
        assert repr(master) in str(raised.value)
        assert fault in str(raised.value)
        assert time.monotonic() - begun < 12
