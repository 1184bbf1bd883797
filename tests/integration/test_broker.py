import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from app.embedded import broker_process, command, jars
from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.errors import ConfigurationError, PrerequisiteError
from tests.support import kafka
from tests.support.checkout import ROOT
from tests.support.kafka import Sent
from tests.support.worker import run_verb, wait_for

LIMIT_S = 120


GIVEN = {
    "log.retention.ms": "61000",
    "sasl.kerberos.kinit.cmd": "C:\\tools\\größe -x",
    "log.retention.mss": "1",
}
"""Properties of the broker that tests may disturb; Kafka does not know the last one."""


@pytest.fixture(scope="module")
def _own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker(tmp_path_factory.mktemp("own"), properties=GIVEN)
    yield broker
    broker.stop()


@pytest.fixture
def own(_own: EmbeddedBroker) -> EmbeddedBroker:
    """Return a running broker that a test may disturb."""
    if not _own.running:
        _own.start()
    return _own


def test_folder_in_use(own: EmbeddedBroker) -> None:
    """The error for a second broker in one folder names the folder and the first process, which continues."""
    with pytest.raises(PrerequisiteError, match=rf"{own.directory} .*\(process {own.pid}\)"):
        EmbeddedBroker(own.directory).start()

    with pytest.raises(PrerequisiteError, match=f"process {own.pid}"):
        own.start()
    assert own.running


def test_properties(own: EmbeddedBroker) -> None:
    """The given properties are in force, whatever characters they have; the check finds one that Kafka does not know."""
    client = AdminClient({"bootstrap.servers": own.bootstrap_servers, "log_level": 0})
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    found = client.describe_configs([resource])[resource].result(LIMIT_S)

    assert {key: found[key].value for key in list(GIVEN)[:2]} == {key: GIVEN[key] for key in list(GIVEN)[:2]}
    with pytest.raises(ConfigurationError, match=r"no property log\.retention\.mss \([^,]+: correct"):
        command.require_known(GIVEN, own.described_properties())


def test_pause_and_resume(own: EmbeddedBroker) -> None:
    """A paused broker accepts connections and answers nothing; a resumed one answers; a paused one can be stopped."""
    client = AdminClient({"bootstrap.servers": own.bootstrap_servers, "log_level": 0})
    cluster_id = client.list_topics(timeout=LIMIT_S).cluster_id

    own.pause()

    assert own.running
    socket.create_connection(("127.0.0.1", own.port), timeout=LIMIT_S).close()
    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.5)
    own.resume()
    assert client.list_topics(timeout=LIMIT_S).cluster_id == cluster_id
    own.pause()
    own.stop()
    assert not own.running


def test_port_in_use(tmp_path: Path) -> None:
    """The error for a port in use names it and the remedy, and nothing is left running."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        broker = EmbeddedBroker(tmp_path, port)

        with pytest.raises(PrerequisiteError, match=f"port {port} of 127.0.0.1 is in use: .*--port"):
            broker.start()

    assert not broker.running


def test_another_object_takes_over_the_folder(own: EmbeddedBroker) -> None:
    """Data belongs to the folder: another object, here on another port, continues with it.

    A folder of a later version is refused with both versions. One of an earlier version is used, and stays of that version.
    """
    kafka.create_topics(own.bootstrap_servers, {"taken": (1, {})})
    kafka.send(own.bootstrap_servers, "taken", [Sent(value=b"before")])
    note = own.directory / "kafka.version"
    assert note.read_text() == f"{own.version}\n"
    own.stop()
    note.write_text("99.0.0\n")

    with pytest.raises(
        PrerequisiteError, match=rf"formatted by Kafka 99\.0\.0, .* Kafka {own.version} .*--dir"
    ):
        EmbeddedBroker(own.directory).start()

    note.write_text("3.0.0\n")
    with EmbeddedBroker(own.directory) as successor:
        assert successor.port != own.port
        assert [item.value for item in kafka.read_all(successor.bootstrap_servers, "taken", 1)] == [b"before"]
        assert note.read_text() == "3.0.0\n"


def test_folder_not_writable(tmp_path: Path) -> None:
    """The error for a folder that cannot be made names it."""
    (tmp_path / "file").touch()

    with pytest.raises(PrerequisiteError, match=f"{tmp_path}/file.*--dir"):
        EmbeddedBroker(tmp_path / "file" / "broker").start()


def test_early_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a broker that ends while it starts shows the output of Java or Kafka, and nothing is left running."""
    broker = EmbeddedBroker(tmp_path)
    monkeypatch.setattr(broker_process, "JVM_OPTIONS", ("-Xmx2zz",))

    with pytest.raises(PrerequisiteError, match="Invalid maximum heap size"):
        broker.start()

    assert not broker.running


def test_no_answer_in_time(tmp_path: Path) -> None:
    """The error for a broker that takes too long names the time waited, and the process is gone."""
    broker = EmbeddedBroker(tmp_path)

    with pytest.raises(PrerequisiteError, match=r"did not answer at .* within 0\.1 s"):
        broker.start(timeout=0.1)

    assert not broker.running


def test_a_property_that_is_refused(tmp_path: Path) -> None:
    """A refused property gives one line with Kafka's own reason; exit code 2, and no broker is left."""
    ended = _refused(tmp_path, "--property", "log.retention.ms=a while")

    (line,) = ended.stderr.splitlines()
    reason = "Invalid value a while for configuration log.retention.ms: Not a number of type LONG: correct"
    assert line.startswith(f"ringfence: Kafka refuses a property: {reason}")


def _refused(directory: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``ringfence broker`` that ends with exit code 2 and an error."""
    ended = run_verb(
        "broker", "--port", "0", "--dir", str(directory), *options, check=False, limit_s=LIMIT_S, environment=environment
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (2, "")
    return ended


@contextlib.contextmanager
def _broker_command(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """``ringfence broker`` in a process group of its own, as a shell starts it from a terminal."""
    with subprocess.Popen(
        [sys.executable, "-m", "app", "broker", "--port", "0", "--dir", str(directory)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as command:
        try:
            yield command
        finally:
            command.kill()  # its broker dies with it


def _ready(command: subprocess.Popen[str]) -> psutil.Process:
    """Return the Java process of a command that has reported that it is ready."""
    assert command.stdout is not None
    line = command.stdout.readline()
    assert line.startswith(f"Kafka {jars.chosen_version()} answers at 127.0.0.1:"), command.communicate(
        timeout=LIMIT_S
    )
    (java,) = psutil.Process(command.pid).children()
    assert java.name() == "java"
    return java


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_command_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C, which the whole group gets, and SIGTERM end the broker in order, with exit code 0."""
    with _broker_command(tmp_path) as command:
        java = _ready(command)
        assert os.getsid(java.pid) != os.getsid(command.pid), "Ctrl-C would reach Java before the command"

        os.killpg(command.pid, number)

        assert command.wait(LIMIT_S) == 0
        assert not java.is_running()
        assert "shut down completed" in (tmp_path / "broker.log").read_text("utf-8")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
def test_broker_dies_with_its_parent(tmp_path: Path) -> None:
    with _broker_command(tmp_path) as command:
        java = _ready(command)

        command.kill()
        command.wait(LIMIT_S)

        wait_for(lambda: not java.is_running(), lambda: "the broker outlived its parent", LIMIT_S)


@pytest.mark.long
def test_command_tells_of_a_dead_broker(tmp_path: Path) -> None:
    """A broker that dies under the command gives exit code 2 and the end of its log, not a silent wait."""
    with _broker_command(tmp_path) as command:
        _ready(command).kill()

        _, errors = command.communicate(timeout=LIMIT_S)

        assert command.returncode == 2
        assert "the broker ended by itself" in errors
        assert "Kafka Server started" in errors


def test_no_java(tmp_path: Path) -> None:
    """The command names the package to install if Java is missing: exit code 2 and no traceback."""
    ended = _refused(tmp_path, PATH="", JAVA_HOME="")

    assert ended.stderr.startswith("ringfence: no java found")
    assert "openjdk-17-jre-headless" in ended.stderr
    assert "Traceback" not in ended.stderr
