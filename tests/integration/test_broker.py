import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from app.embedded import jars, properties
from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.errors import PrerequisiteError
from tests.support.kafka import create_topics

ROOT = Path(__file__).parents[2]
LIMIT_S = 120


def _write(broker: EmbeddedBroker, topic: str, value: bytes) -> None:
    create_topics(broker.bootstrap_servers, {topic: (1, {})})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, value)
    assert producer.flush(LIMIT_S) == 0


def _read(broker: EmbeddedBroker, topic: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(LIMIT_S)
    consumer.close()
    assert message is not None
    assert message.error() is None
    value = message.value()
    return None if value is None else bytes(value)


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """Yield a broker that a test may disturb."""
    with EmbeddedBroker(tmp_path / "broker") as broker:
        yield broker


@pytest.mark.long
@pytest.mark.parametrize("end", [EmbeddedBroker.stop, EmbeddedBroker.kill])
def test_a_restart_keeps_everything(own: EmbeddedBroker, end: Callable[[EmbeddedBroker], None]) -> None:
    """After an orderly end and after a kill, the same address, cluster ID and data are there again."""
    address, cluster, first = own.bootstrap_servers, own.cluster_id, own.pid
    _write(own, "kept", b"before")

    end(own)

    assert not own.running
    assert not psutil.pid_exists(first)
    own.start()
    assert own.pid != first
    assert own.bootstrap_servers == address
    assert own.cluster_id == cluster
    assert _read(own, "kept") == b"before"


def test_a_second_object_takes_over_the_folder(own: EmbeddedBroker) -> None:
    """Data belongs to the folder: another object, here on another port, continues with it."""
    _write(own, "kept", b"before")
    own.stop()

    with EmbeddedBroker(own.directory) as successor:
        assert successor.port != own.port
        assert _read(successor, "kept") == b"before"


def test_pause_and_resume(own: EmbeddedBroker) -> None:
    """A paused broker accepts connections and answers nothing; a resumed one answers; a paused one can be stopped."""
    client = AdminClient({"bootstrap.servers": own.bootstrap_servers, "log_level": 0})
    client.list_topics(timeout=LIMIT_S)

    own.pause()

    assert own.running
    socket.create_connection(("127.0.0.1", own.port), timeout=LIMIT_S).close()
    with pytest.raises(KafkaException):
        client.list_topics(timeout=0.5)
    own.resume()
    assert client.list_topics(timeout=LIMIT_S).cluster_id == own.cluster_id
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


def test_folder_in_use(broker: EmbeddedBroker) -> None:
    """The error for a second broker in one folder names the folder and the first process, which continues."""
    with pytest.raises(PrerequisiteError, match=rf"{broker.directory} .*\(process {broker.pid}\)"):
        EmbeddedBroker(broker.directory).start()

    with pytest.raises(PrerequisiteError, match=f"process {broker.pid}"):
        broker.start()
    assert broker.running


def test_folder_of_a_later_version(tmp_path: Path) -> None:
    """The error for a folder of a later version names both versions. The folder of an earlier version is used, and stays of that version."""
    with EmbeddedBroker(tmp_path) as broker:
        version = broker.version
    note = tmp_path / "kafka.version"
    assert note.read_text() == f"{version}\n"
    note.write_text("99.0.0\n")

    with pytest.raises(PrerequisiteError, match=rf"formatted by Kafka 99\.0\.0, .* Kafka {version} .*--dir"):
        EmbeddedBroker(tmp_path).start()

    note.write_text("3.0.0\n")
    with EmbeddedBroker(tmp_path):
        assert note.read_text() == "3.0.0\n"


def test_folder_not_writable(tmp_path: Path) -> None:
    """The error for a folder that cannot be made names it."""
    (tmp_path / "file").touch()

    with pytest.raises(PrerequisiteError, match=f"{tmp_path}/file.*--dir"):
        EmbeddedBroker(tmp_path / "file" / "broker").start()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"heap": "2zz"}, "Invalid maximum heap size"),
        ({"properties": {"metric.reporters": "no.such.Reporter"}}, r"no\.such\.Reporter"),
        ({"properties": {"log.retention.ms": "a while"}}, "log.retention.ms"),
    ],
)
def test_early_end(tmp_path: Path, arguments: dict[str, object], said: str) -> None:
    """The error of a broker that ends while it starts shows the output of Java or Kafka, and nothing is left running."""
    broker = EmbeddedBroker(tmp_path, **arguments)  # type: ignore[arg-type]

    with pytest.raises(PrerequisiteError, match=said):
        broker.start()

    assert not broker.running


def test_no_answer_in_time(tmp_path: Path) -> None:
    """The error for a broker that takes too long names the time waited, and the process is gone."""
    broker = EmbeddedBroker(tmp_path)

    with pytest.raises(PrerequisiteError, match=r"did not answer at .* within 0\.1 s"):
        broker.start(timeout=0.1)

    assert not broker.running


def test_properties(tmp_path: Path) -> None:
    """The given properties are in force, whatever characters they have; the check finds one that Kafka does not know."""
    given = {
        "log.retention.ms": "61000",
        "sasl.kerberos.kinit.cmd": "C:\\tools\\größe -x",
        "log.retention.mss": "1",
    }
    with EmbeddedBroker(tmp_path, properties=given) as broker:
        client = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        resource = ConfigResource(ConfigResource.Type.BROKER, "1")
        found = client.describe_configs([resource])[resource].result(LIMIT_S)
        strange = properties.unknown(given, broker.described_properties())

    assert {key: found[key].value for key in list(given)[:2]} == {key: given[key] for key in list(given)[:2]}
    assert strange == ["log.retention.mss"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "log.retention.ms=a while",
            "Kafka refuses a property: Invalid value a while for configuration log.retention.ms: Not a number of type LONG: correct",
        ),
        (
            "log.retention.mss=1",
            "--property: Kafka has no property log.retention.mss (did you mean log.retention.ms?)",
        ),
    ],
)
def test_a_property_that_is_refused(tmp_path: Path, given: str, said: str) -> None:
    """A refused property gives one line with Kafka's own reason, or the name that was meant; exit code 2, and no broker is left."""
    with _broker_command(tmp_path, "--property", given) as command:
        out, errors = command.communicate(timeout=LIMIT_S)

        assert (command.returncode, out) == (2, "")
        assert errors.startswith(f"ringfence: {said}")
        assert len(errors.splitlines()) == 1


def test_version_that_nobody_knows(tmp_path: Path) -> None:
    """An unknown version gives one line with the known ones; exit code 2, and no folder is made."""
    with _broker_command(tmp_path / "broker", "--kafka-version", "3.8.1") as command:
        out, errors = command.communicate(timeout=LIMIT_S)

    assert (command.returncode, out) == (2, "")
    assert re.fullmatch(
        r"ringfence: --kafka-version: Kafka 3\.8\.1 is not .*: name one of 3\.9\.1, .*\n", errors
    )
    assert not (tmp_path / "broker").exists()


@contextlib.contextmanager
def _broker_command(directory: Path, *options: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """``ringfence broker`` in a process group of its own, as a shell starts it from a terminal."""
    with subprocess.Popen(
        [sys.executable, "-m", "app", "broker", "--port", "0", "--dir", str(directory), *options],
        cwd=ROOT,
        env=os.environ | environment,
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_command_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """SIGTERM, Ctrl-C (sent to the whole group) and a closed terminal end the broker in order, with exit code 0."""
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

        _wait(lambda: not java.is_running(), "the broker outlived its parent")


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
    environment = {"PATH": "", "JAVA_HOME": ""}
    with _broker_command(tmp_path, **environment) as command:
        _, errors = command.communicate(timeout=LIMIT_S)

        assert command.returncode == 2
        assert errors.startswith("ringfence: no java found")
        assert "openjdk-17-jre-headless" in errors
        assert "Traceback" not in errors
