"""Spark's master is looked at before Spark is: it would try for a minute, and then show a trace."""

import socket
import time

import pytest

from reconcile.session import session
from reconcile.session.master import check
from ringfence_kafka.errors import ConfigurationError, PrerequisiteError


@pytest.mark.parametrize(
    "master",
    ["local", "local[*]", "local[4]", "local[2,3]", "local[*, 2]", "yarn", "k8s://https://nobody:443"],
)
def test_masters(master: str) -> None:
    check(master)


@pytest.mark.parametrize(
    "master", ["", "foo", "local[0]", "spark://", "spark://host", "spark://host:port", "http://host:8080"]
)
def test_no_master(master: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"that is not a master of Spark: write local\[\*\], .*spark://HOST:7077"
    ):
        check(master)


@pytest.mark.parametrize(
    ("master", "fault"),
    [
        ("spark://127.0.0.1:1", "Connection refused"),
        ("spark://[::1]:1,127.0.0.1:2", "Connection refused"),
        ("spark://nobody.invalid:7077", "nobody.invalid"),
    ],
)
def test_nobody_there(master: str, fault: str) -> None:
    begun = time.monotonic()

    with pytest.raises(PrerequisiteError, match="no program listens there") as raised:
        check(master)
    assert repr(master) in str(raised.value)
    assert fault in str(raised.value)
    assert time.monotonic() - begun < 12


def test_one_of_several_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check(f"spark://127.0.0.1:1,127.0.0.1:{server.getsockname()[1]}")


def test_spark_submit_has_its_own() -> None:
    """A master in the configuration is not checked under spark-submit, which does not use it."""
    session.required("foo", {"PYSPARK_GATEWAY_PORT": "1"})
    with pytest.raises(ConfigurationError):
        session.required("foo", {})
