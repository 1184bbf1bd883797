"""``ringfence send`` against a real broker."""

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.cimpl import murmur2

from app.commands.send import send, sender
from app.commands.send.json_lines import InputError
from app.commands.send.send_record import Outgoing
from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.admin.topics import TopicDescription
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import BrokerUnavailableError
from tests.support import kafka

PARTITIONS = 5


def _settings(bootstrap: str, address: str) -> Settings:
    return validate({"kafka": {"bootstrap_servers": bootstrap}, "addresses": [{"name": address}]})


@pytest.fixture
def address(bootstrap: str) -> str:
    """Return an address whose input topic exists."""
    name = kafka.unique("send")
    kafka.create_topics(bootstrap, {name: (PARTITIONS, {})})
    return name


def _file(folder: Path, lines: list[Any]) -> str:
    path = folder / "lines.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return str(path)


def test_what_arrives(
    bootstrap: str, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Key, value and headers arrive as in the line, and the ID as the header that the address reads."""
    lines: list[Any] = [
        {"id": "1", "group": "g", "value": "text", "headers": [["hop", "a"], ["hop", "b"], ["none", None]]},
        {"id": "2", "group": "g", "value": {"n": 1}},
        "",
        {"group": "g", "value": None},
        {"value": "alone"},
        {"value": None},
    ]

    assert send.send_lines(_settings(bootstrap, address), address, _file(tmp_path, lines)) == 0
    got = kafka.read_all(bootstrap, address, PARTITIONS)
    of_group = [item for item in got if item.key == b"g"]
    assert [(item.value, item.headers) for item in of_group] == [
        (b"text", [("hop", b"a"), ("hop", b"b"), ("none", None), ("_AMQ_DUPL_ID", b"1")]),
        (b'{"n":1}', [("_AMQ_DUPL_ID", b"2")]),
        (None, []),
    ]
    assert {item.partition for item in of_group} == {murmur2(b"g", PARTITIONS)}
    assert sorted((item.value for item in got if item.key is None), key=str) == [None, b"alone"]
    assert capsys.readouterr().err.startswith(f"sent 5 messages to {address} in ")


def test_a_bad_line_stops_it(bootstrap: str, address: str, tmp_path: Path) -> None:
    """Lines before a bad one are sent and counted, and none after it; the error names the next move."""
    good = [{"id": str(index), "group": "g", "value": None} for index in range(3)]

    with pytest.raises(InputError) as caught:
        send.send_lines(_settings(bootstrap, address), address, _file(tmp_path, [*good, {"id": 7}, *good]))
    assert "lines.jsonl line 4: id = 7 is not a string" in str(caught.value)
    assert "3 messages sent before it ended: send everything again" in str(caught.value)
    assert caught.value.exit_code == 2
    assert len(kafka.read_all(bootstrap, address, PARTITIONS)) == 3


def test_a_bad_line_where_nothing_is_dropped(bootstrap: str, address: str, tmp_path: Path) -> None:
    """Lines that are sent again pass once more where the address only observes, and the error says so."""
    observing = validate(
        {"addresses": [{"name": address, "mode": "observe"}], "kafka": {"bootstrap_servers": bootstrap}}
    )

    with pytest.raises(InputError, match="passes once more, as this address drops no duplicates"):
        send.send_lines(observing, address, _file(tmp_path, [{"id": "1", "value": "x"}, {"id": 7}]))


def test_byte_order_marks(bootstrap: str, address: str, tmp_path: Path) -> None:
    """A mark of UTF-8 is skipped. A file in another encoding is refused, and the error names that reason."""
    line = json.dumps({"id": "1", "group": "g", "value": "x"}) + "\n"
    marked, other = tmp_path / "marked.jsonl", tmp_path / "other.jsonl"
    marked.write_text(line, "utf-8-sig")
    other.write_text(line, "utf-16")

    assert send.send_lines(_settings(bootstrap, address), address, marked) == 0
    with pytest.raises(InputError, match=r"other.jsonl: .* of UTF-16 or UTF-32: save it as UTF-8"):
        send.send_lines(_settings(bootstrap, address), address, other)
    assert [item.id for item in kafka.read_all(bootstrap, address, PARTITIONS)] == [b"1"]


def test_a_bad_line_after_one_without_an_id(bootstrap: str, address: str, tmp_path: Path) -> None:
    """The error calls a repetition harmless only if all sent lines had an ID."""
    lines: list[Any] = [{"id": "1", "value": "x"}, {"value": "no ID"}, "{"]

    with pytest.raises(InputError, match=r"2 messages .* 1 of them without an ID: .* would repeat"):
        send.send_lines(_settings(bootstrap, address), address, _file(tmp_path, lines))


def test_too_large(bootstrap: str, address: str, tmp_path: Path) -> None:
    """The error names a line that the broker refuses; the lines before it are sent."""
    lines = [{"id": "1", "group": "g", "value": ""}, {"id": "2", "group": "g", "value": "x" * 2_000_000}]

    with pytest.raises(InputError, match=r"line 2: larger than the broker takes.*\n1 message sent"):
        send.send_lines(_settings(bootstrap, address), address, _file(tmp_path, lines))
    assert [item.id for item in kafka.read_all(bootstrap, address, PARTITIONS)] == [b"1"]


def test_a_limit_that_this_user_may_not_see(
    bootstrap: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker decides about large lines."""
    monkeypatch.setattr(
        send, "input_topic", AsyncMock(return_value=TopicDescription(address, PARTITIONS, None))
    )

    assert (
        send.send_lines(_settings(bootstrap, address), address, _file(tmp_path, [{"value": "x" * 100_000}]))
        == 0
    )


@pytest.mark.parametrize("at", [1, 60])
def test_order_behind_a_refused_line(bootstrap: str, tmp_path: Path, at: int) -> None:
    """Nothing of a group is written behind its refused line, at the start and in the middle. The error lists the lines.

    The lines that are not written, sent again, complete each group in order.
    """
    topic = kafka.unique("send")
    kafka.create_topics(bootstrap, {topic: (2, {"max.message.bytes": "20000"})})
    groups = [next(f"g{n}" for n in range(99) if murmur2(b"g%d" % n, 2) == index) for index in range(2)]
    lines = [{"group": groups[n % 2], "value": f"{n:04d}" + "x" * 3_000} for n in range(1, 301)]
    lines[at - 1]["value"] = "x" * 50_000

    with pytest.raises(InputError) as caught:
        send.send_lines(_settings(bootstrap, topic), topic, _file(tmp_path, lines))
    said = str(caught.value)
    got = [int((item.value or b"")[:4]) for item in kafka.read_all(bootstrap, topic, 2)]
    assert f"line {at}: larger than the broker takes" in said
    assert [number for number in got if number > at and number % 2 == at % 2] == []
    assert _numbers(said, "Written: ") == sorted(got)
    last = int(said.split("all lines after line ")[1].split(".", maxsplit=1)[0])
    assert _numbers(said, "Not written: ") == [index for index in range(1, last + 1) if index not in got]
    assert (f"Then send only what is not written: lines without an ID ({len(got)})" in said) == bool(got)

    lines[at - 1]["value"] = f"{at:04d}"
    rest = [line for number, line in enumerate(lines, 1) if number not in got]
    assert send.send_lines(_settings(bootstrap, topic), topic, _file(tmp_path, rest)) == 0
    for parity, group in enumerate(groups):
        found = [
            int((item.value or b"")[:4])
            for item in kafka.read_all(bootstrap, topic, 2)
            if item.key == group.encode()
        ]
        assert found == [index for index in range(1, 301) if index % 2 == parity]


def _numbers(said: str, what: str) -> list[int]:
    """Return the line numbers behind a word of an error."""
    listed = said.split(what)[1].split(".", maxsplit=1)[0].split(" and all lines after", maxsplit=1)[0]
    found: list[int] = []
    for part in listed.removeprefix("lines ").removeprefix("line ").split(", "):
        if part[0].isdigit():
            first, _, last = part.partition("-")
            found += range(int(first), int(last or first) + 1)
    return found


def test_a_topic_of_small_messages(bootstrap: str, tmp_path: Path) -> None:
    """Batches follow the topic's limit: lines that fit alone are not refused because they travel together."""
    topic = kafka.unique("send")
    kafka.create_topics(bootstrap, {topic: (1, {"max.message.bytes": "20000"})})
    lines = [{"id": str(index), "group": "g", "value": "x" * 1_000} for index in range(200)]

    assert send.send_lines(_settings(bootstrap, topic), topic, _file(tmp_path, lines)) == 0
    assert len(kafka.read_all(bootstrap, topic, 1)) == 200


def test_standard_input(bootstrap: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"id": "x", "value": ""}\n{"id": "y", "value": ""}'))
    )
    assert send.send_lines(_settings(bootstrap, address), address) == 0
    assert len(kafka.read_all(bootstrap, address, PARTITIONS)) == 2


def test_many(
    bootstrap: str,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every line arrives, in the order of its group, when there are more than the producer's queue holds."""
    monkeypatch.setattr(sender, "LINES_MAX", 100)
    count = 5 * sender.LINES_MAX
    lines = [{"id": str(index), "group": "g", "value": str(index)} for index in range(count)]

    send.send_lines(_settings(bootstrap, address), address, _file(tmp_path, lines))
    assert [item.value for item in kafka.read_all(bootstrap, address, PARTITIONS)] == [
        b"%d" % index for index in range(count)
    ]
    assert f"sent {count:,} messages" in capsys.readouterr().err


@pytest.mark.long
def test_the_broker_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that freezes in the middle ends the verb with an error that gives the sent number, not with a hang."""
    monkeypatch.setattr(sender, "DELIVERY_LIMIT_S", 3.0)
    with EmbeddedBroker(tmp_path / "broker") as own:
        kafka.create_topics(own.bootstrap_servers, {"orders": (1, {})})
        real = sender.Sender.send

        def send_then_freeze(own_sender: sender.Sender, number: int, record: Outgoing) -> None:
            if number == 2:
                own_sender.finish()
                own.pause()
            real(own_sender, number, record)

        monkeypatch.setattr(sender.Sender, "send", send_then_freeze)
        lines = [{"id": name, "value": name} for name in "123"]
        with pytest.raises(BrokerUnavailableError, match=r"line 2: no broker .*\n1 message sent .* again"):
            send.send_lines(_settings(own.bootstrap_servers, "orders"), "orders", _file(tmp_path, lines))
        own.kill()


def test_interrupted(bootstrap: str, address: str, tmp_path: Path) -> None:
    """Ctrl-C during a read of standard input delivers and counts the lines that were read; exit code 130."""
    config = tmp_path / "ringfence.toml"
    config.write_text(f'[kafka]\nbootstrap_servers = "{bootstrap}"\n[[addresses]]\nname = "{address}"\n')
    command = [sys.executable, "-m", "app", "send", address, "--config", str(config)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write('{"id": "1", "value": "x"}\n')
        process.stdin.flush()
        deadline = time.monotonic() + kafka.WAIT_S
        while not _arrived(bootstrap, address):
            assert time.monotonic() < deadline, "nothing arrived"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=kafka.WAIT_S)

    assert process.returncode == 130
    assert "interrupted: 1 message sent before it ended" in said


def _arrived(bootstrap: str, topic: str) -> bool:
    try:
        return sum(kafka.end_offsets(bootstrap, topic, PARTITIONS)) > 0
    except KafkaException:  # the topic is new, and its leader may not be known yet
        return False
