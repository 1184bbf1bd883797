"""The page on transactions, followed to the letter: its configuration, its producers, its lines, against a broker and a worker."""

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.embedded import jars
from app.embedded.broker import EmbeddedBroker
from app.embedded.broker_process import JVM_OPTIONS
from ringfence_kafka.process import java
from tests.support import kafka
from tests.support.kafka import Got
from tests.support.pages import transactions
from tests.support.worker import configure, run_verb, wait_for, worker


# Topics are shared with other tests, so its addresses get names of this module's; nothing else is changed.
def renamed(text: str) -> str:
    return text.replace("payments", "page-payments").replace("transfers", "page-transfers")


TEXT = renamed(transactions.TEXT)
TRANSFERS, PAYMENTS = "page-transfers", "page-payments"
PARTITIONS = 4
HEADERS = [(name, value.encode()) for name, value in transactions.HEADERS]


@dataclass(frozen=True)
class Followed:
    """State of a reader of the page after the section "Set up"."""

    bootstrap: str
    config: Path

    def inputs(self, id_: str) -> list[Got]:
        """Envelopes with this ID in the input."""
        found = kafka.read_all(self.bootstrap, TRANSFERS, PARTITIONS)
        return [item for item in found if item.id == id_.encode()]

    def accepted(self, address: str, sources: set[str]) -> list[Got]:
        """Return accepted records of envelopes at these places."""
        found = kafka.read_all(self.bootstrap, f"{address}.accepted", PARTITIONS)
        return [item for item in found if item.source in sources]

    def send(self, line: str) -> None:
        run_verb("send", TRANSFERS, "--config", str(self.config), stdin=line)


@pytest.fixture(scope="module")
def followed(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    """Yield the addresses of the page, and a worker."""
    addresses = tomllib.loads(transactions.block("toml", TEXT))["addresses"]
    config = configure(tmp_path_factory.mktemp("page"), broker.bootstrap_servers, "page", addresses)
    with worker(config, "page"):
        yield Followed(broker.bootstrap_servers, config)


def program(language: str, file: Path, bootstrap: str) -> Path:
    """Return an example program, in a file."""
    text = renamed(transactions.program(language))
    assert text.count('"127.0.0.1:9092"') == 1
    file.write_text(text.replace("127.0.0.1:9092", bootstrap), "utf-8")
    return file


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def settle(followed: Followed) -> None:
    """Wait until a transaction that was sent last, for the same lane, is processed."""
    mark = kafka.unique("mark")
    part = {"address": PAYMENTS, "group": "mark", "value": mark}
    followed.send(json.dumps({"id": mark, "group": transactions.KEY, "parts": [part]}))

    def values() -> list[bytes | None]:
        return [item.value for item in kafka.read_all(followed.bootstrap, f"{PAYMENTS}.accepted", PARTITIONS)]

    wait_for(lambda: mark.encode() in values(), lambda: f"{mark} is not in {values()}")


def test_python_and_java_programs(followed: Followed, tmp_path: Path) -> None:
    """Each program sends the test vector, byte for byte, to one partition; one of all sendings is accepted, as the page lists it."""
    commands = [[sys.executable, str(program("python", tmp_path / "transfer.py", followed.bootstrap))]]
    if shutil.which("javac") is not None:  # a Java that runs programs from their source
        source = program("java", tmp_path / "Transfer.java", followed.bootstrap)
        commands.append([str(java.find()), *JVM_OPTIONS, "-cp", jars.class_path(), str(source)])
    for command in [*commands, commands[0]]:
        run(command)
    settle(followed)
    sent = followed.inputs("pay-4711")
    sources = {f"{TRANSFERS}/{item.partition}/{item.offset}" for item in sent}
    own, other = (followed.accepted(name, sources) for name in (TRANSFERS, PAYMENTS))

    assert len(sent) == len(commands) + 1
    assert {(item.key, item.value) for item in sent} == {
        (transactions.KEY.encode(), transactions.vector(TEXT).encode())
    }
    assert all(item.headers == HEADERS for item in sent)
    assert len({item.partition for item in sent}) == 1
    assert [(item.key, item.value, item.headers) for item in own] == [
        (b"acct-1", '{"debit":"10 €"}'.encode(), [("_RF_SOURCE", own[0].source.encode()), ("_RF_TX_PART", b"1/2")])
    ]  # fmt: skip
    assert [(item.key, item.value, item.headers) for item in other] == [
        (b"acct-2", b"\x00\x01\xff",
         [("type", b"credit"), ("_RF_SOURCE", own[0].source.encode()), ("_RF_TX_PART", b"2/2")])
    ]  # fmt: skip
    assert own[0].source == f"{TRANSFERS}/{sent[0].partition}/{sent[0].offset}"


def test_lines_of_send_and_the_remedy(followed: Followed) -> None:
    """The line of "Set up", sent twice, is accepted once; "close" as a transaction under its key comes after the credit."""
    close, transfer = transactions.blocks("json", TEXT.split("## The format")[0])
    for line in (transfer, close, transfer):
        followed.send(line)
    settle(followed)
    sent = [*followed.inputs("t-1"), *followed.inputs("close-2")]
    sources = {f"{TRANSFERS}/{item.partition}/{item.offset}" for item in sent}

    assert len(sent) == 3
    assert [(item.key, item.value) for item in followed.accepted(TRANSFERS, sources)] == [
        (b"acct-1", b'{"debit":10}')
    ]
    assert [(item.key, item.value) for item in followed.accepted(PAYMENTS, sources)] == [
        (b"acct-2", b'{"credit":10}'),
        (b"acct-2", b"close"),
    ]
