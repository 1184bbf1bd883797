"""Programs in examples/: an effect that happens once, and readers that print the accepted messages, and no aborted ones."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from app.embedded import jars
from app.embedded.broker import EmbeddedBroker
from app.embedded.broker_process import JVM_OPTIONS
from ringfence_kafka.process import java
from tests.support import kafka
from tests.support.checkout import ROOT
from tests.support.consumers.processes import ConsumerProcess
from tests.support.kafka import Sent
from tests.support.worker import one_address, wait_for

MESSAGES = 3_000
GROUPS = 7
KILLS = 4


@pytest.mark.long
def test_effect_happens_once(bootstrap: str, tmp_path: Path) -> None:
    """No account counts a message twice or misses one, although killed consumers repeat messages."""
    name, config = one_address(tmp_path, bootstrap, "once")
    database = tmp_path / "once.db"
    records = [Sent(b"%d" % index, b"g%d" % (index % GROUPS), b"v") for index in range(MESSAGES)]
    kafka.send(bootstrap, f"{name}.accepted", records)

    def applied() -> int:
        if not database.exists():
            return 0
        try:
            with sqlite3.connect(database, timeout=30) as store:
                return int(store.execute("SELECT COALESCE(SUM(messages), 0) FROM balance").fetchone()[0])
        except sqlite3.OperationalError:
            return 0  # the table is not made yet

    process = ConsumerProcess(
        config, "c", name, f"{name}-group", "--ack-interval", "0.5", "--session-timeout", "6",
        "--lease-timeout", "3", handler="examples.once:handle",
        environment={"ONCE_DATABASE": str(database)},
    )  # fmt: skip
    try:
        for kill in range(KILLS):
            process.start()
            due = MESSAGES * (kill + 1) // (KILLS + 1)
            wait_for(lambda due=due: applied() >= due, process.log)  # type: ignore[misc]
            process.kill()
        process.start()
        wait_for(lambda: applied() >= MESSAGES, process.log)
        assert process.stop() == 0
    finally:
        process.destroy()
    with sqlite3.connect(database) as store:
        balances = dict(store.execute("SELECT account, messages FROM balance"))

    assert balances == {b"g%d" % index: len(range(index, MESSAGES, GROUPS)) for index in range(GROUPS)}


FOLDER = ROOT / "examples" / "readers"
BIN = Path(sys.executable).parent
EXPECTED = ["orders/0/1 first", "orders/0/3 third"]


@pytest.fixture(scope="module")
def topic(broker: EmbeddedBroker) -> str:
    """Return a topic with two committed messages, and one of an aborted transaction between them."""
    name, bootstrap = kafka.unique("readers"), broker.bootstrap_servers
    kafka.create_topics(bootstrap, {name: (1, {})})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(kafka.WAIT_S)
    for number, value in enumerate(("first", "aborted", "third"), 1):
        producer.begin_transaction()
        producer.produce(name, value, "key", headers={"_RF_SOURCE": f"orders/0/{number}"})
        producer.flush(kafka.WAIT_S)
        if value == "aborted":
            producer.abort_transaction(kafka.WAIT_S)
        else:
            producer.commit_transaction(kafka.WAIT_S)
    return name


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs of an environment with FastStream and Quix Streams, which Ringfence does not need."""
    folder = tmp_path_factory.mktemp("readers") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r")
    subprocess.run([folder / "bin" / "python", *install, FOLDER / "requirements.lock"], check=True)
    return folder / "bin"


def _lines(command: list[str | Path], folder: Path, bootstrap: str, topic: str) -> list[str]:
    """Run a reader until it has printed both messages; return the lines that name a place."""
    environment = {**os.environ, "KAFKA": bootstrap, "TOPIC": topic, "PYTHONPATH": str(FOLDER)}
    log = folder / "log"
    with log.open("w") as output:
        running = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        wait_for(lambda: EXPECTED[-1] in log.read_text(), lambda: log.read_text()[-3000:])
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    found = (line for line in log.read_text().splitlines() if "orders/0/" in line)
    return [line[line.index("orders/0/") :].rstrip() for line in found]


@pytest.mark.parametrize(
    "arguments",
    [
        (BIN / "python", FOLDER / "confluent_reader.py"),
        (BIN / "faust", "-A", "faust_reader", "worker"),
        pytest.param(
            (str(java.find()), *JVM_OPTIONS, "-cp", jars.class_path(), FOLDER / "Reader.java"),
            marks=pytest.mark.long,
        ),
    ],
    ids=["confluent", "faust", "java"],
)
def test_reader(arguments: tuple[str | Path, ...], tmp_path: Path, bootstrap: str, topic: str) -> None:
    """A reader prints what was committed, in order."""
    assert _lines([*arguments], tmp_path, bootstrap, topic) == EXPECTED


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [("faststream", "run", "faststream_reader:app"), ("python", FOLDER / "quix_reader.py")],
    ids=["faststream", "quix"],
)
def test_reader_with_another_library(
    others: Path, arguments: tuple[str | Path, ...], tmp_path: Path, bootstrap: str, topic: str
) -> None:
    """A reader on a library that Ringfence does not need prints what was committed, in order."""
    program, *rest = arguments
    assert _lines([others / program, *rest], tmp_path, bootstrap, topic) == EXPECTED


@pytest.mark.long
def test_reader_on_spark(tmp_path: Path, bootstrap: str, topic: str) -> None:
    """Spark's source prints what was committed, in order."""
    assert _lines([BIN / "python", FOLDER / "spark_reader.py"], tmp_path, bootstrap, topic) == EXPECTED
