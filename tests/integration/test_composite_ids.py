"""IDs of several parts, in named headers and in JSON: on the native core, in Python, and through the verbs."""

import json
from pathlib import Path
from typing import Any

import pytest

from ringfence_kafka.protocol.duplicate_id import composed
from tests.harness.checker.check import check
from tests.harness.history import History, Record
from tests.support import kafka
from tests.support.kafka import Got, Sent
from tests.support.worker import Running, configure, run_verb, worker

STRUCTURED = ("content-type", b"application/cloudevents+json; charset=UTF-8")


def offsets(got: list[Got]) -> list[int]:
    """Input offsets of accepted records."""
    return [int(item.source.rsplit("/", 1)[1]) for item in got]


def _event(source: str, number: str, mode: str) -> Sent:
    """Return a CloudEvent of one producer, in binary or structured mode."""
    if mode == "structured":
        value = json.dumps({"specversion": "1.0", "source": source, "id": number, "data": {}}).encode()
        return Sent(None, b"g", value, (STRUCTURED,))
    return Sent(None, b"g", b"{}", (("ce_source", source.encode()), ("ce_id", number.encode())))


def _id_of_event(record: Record) -> bytes | None:
    """As the checker finds it: by code that is not Ringfence's."""
    parts = [record.header("ce_source"), record.header("ce_id")]
    if (record.header("content-type") or b"").startswith(b"application/cloudevents+json"):
        event = json.loads(record.value or b"{}")
        parts = [str(event[name]).encode() for name in ("source", "id")]
    return repr(parts).encode() if all(parts) else None


@pytest.mark.parametrize("native", ["on", "off"])
def test_ids_as_people_have_them(bootstrap: str, tmp_path: Path, native: str) -> None:
    """Only all parts together are an ID; a message that lacks one passes unchecked, or goes to quarantine with the reason."""
    app = kafka.unique("parts")
    names = {name: f"{app}-{name}" for name in ("events", "outbox", "orders", "strict")}
    forms: dict[str, Any] = {
        "events": {"duplicate_id_from": ["header:ce_source", "header:ce_id"]},
        "outbox": {"duplicate_id_from": "header:id"},
        "orders": {"duplicate_id_from": ["key", "value:/order/id"]},
        "strict": {"duplicate_id_from": ["header:a", "header:b"], "duplicate_id_missing": "quarantine"},
    }
    addresses = [{"name": names[name], "partitions": 1, **keys} for name, keys in forms.items()]
    config = configure(tmp_path, bootstrap, app, addresses)
    with worker(config, app, RINGFENCE_NATIVE=native) as process:
        running = Running(bootstrap, process, addresses, app)
        events = [
            _event("/a", "1", "binary"), _event("/b", "1", "binary"), _event("/a", "2", "binary"),
            _event("/a", "1", "structured"), _event("/c", "1", "structured"), _event("/c", "1", "binary"),
            Sent(None, b"g", b"{}", (("ce_id", b"1"),)), Sent(None, b"g", b"{}", (("ce_id", b"1"),)),
        ]  # fmt: skip
        assert offsets(running.outcome(names["events"], events)) == [0, 1, 2, 4, 6, 7]
        quoted = [Sent(None, b"g", b"v", (("id", value),)) for value in (b'"8f2"', b"8f2", b'"8f2"', b"8f2")]
        assert offsets(running.outcome(names["outbox"], quoted)) == [0, 1]
        orders = [
            Sent(None, key, value)
            for key in (b"k", b"l")
            for value in (
                b'{"order":{"id":7}}',
                b'{"order":{"id":"7"},"again":true}',
                b'{"order":{}}',
                b"no JSON",
            )
        ]
        assert offsets(running.outcome(names["orders"], orders)) == [0, 2, 3, 4, 6, 7]
        strict = [
            Sent(None, b"g", b"v", tuple((name, b"1") for name in present))
            for present in ("ab", "a", "ab", "b")
        ]
        assert offsets(running.outcome(names["strict"], strict)) == [0]
        refused = running.read(f"{names['strict']}.quarantine")
    assert [dict(item.headers)["_RF_REASON"] for item in refused] == [
        b'no duplicate ID: the header %b is missing or empty (duplicate_id_missing = "quarantine")' % name
        for name in (b"b", b"a")
    ]
    assert _judged(bootstrap, names["events"]) == []


def _judged(bootstrap: str, address: str) -> list[Any]:
    """Return the findings of the fault checker in one address."""

    def read(topic: str) -> list[Record]:
        return [
            Record(
                topic, item.partition, item.offset, item.key, item.value, tuple(item.headers), item.timestamp
            )
            for item in kafka.read_all(bootstrap, topic, 1)
        ]

    history = History(address, 1, 20_000, lambda _key: 0, id_of=_id_of_event)
    history.inputs, history.accepted = read(address), read(f"{address}.accepted")
    return check(history)


def test_verbs_take_the_parts(bootstrap: str, tmp_path: Path) -> None:
    """``send`` needs the parts, ``rings show`` shows them, and ``rings find`` takes them one by one or as a whole."""
    name = kafka.unique("verbs")
    addresses = [{"name": name, "partitions": 1, "duplicate_id_from": ["header:ce_source", "header:ce_id"]}]
    config = configure(tmp_path, bootstrap, name, addresses)
    options = ("--config", str(config))
    lines = tmp_path / "lines.jsonl"
    line = {"headers": {"ce_source": "/my shop", "ce_id": "42"}, "group": "g", "value": "v"}
    lines.write_text(f"{json.dumps(line)}\n" * 2)
    with worker(config, name) as process:
        running = Running(bootstrap, process, addresses, name)
        sent = run_verb("send", name, str(lines), *options)
        assert offsets(running.settled(name)) == [0], sent.stderr
    lines.write_text(json.dumps({"id": "42", "value": "v"}))
    refused = run_verb("send", name, str(lines), *options, check=False)
    shown = run_verb("rings", "show", name, *options)
    entry = json.loads(run_verb("rings", "show", name, "--json", *options).stdout)["addresses"][name][0][
        "newest"
    ]

    assert refused.returncode == 2
    assert "id = '42' has no effect" in refused.stderr
    assert "'/my shop' 42" in shown.stdout
    assert entry["parts"] == ["/my shop", "42"]
    assert entry["id"] == f"hex:{composed([b'/my shop', b'42']).hex()}"
    for identifier in (entry["parts"], [entry["id"]]):
        found = run_verb("rings", "find", name, *identifier, *options)
        assert found.stdout.startswith("known ")
    assert run_verb("rings", "find", name, "/my", "shop 42", *options, check=False).returncode == 1
    three = run_verb("rings", "find", name, "a", "b", "c", *options, check=False)
    assert three.returncode == 2
    assert "has 2 parts, header:ce_source, header:ce_id" in three.stderr
