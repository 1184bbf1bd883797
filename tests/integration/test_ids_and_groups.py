"""Bytes that are a message's ID and its group, address by address; IDs of several parts, also through the verbs."""

import json
from pathlib import Path
from typing import Any

from ringfence_kafka.protocol.duplicate_id import composed
from tests.harness.checker.check import check
from tests.harness.history import History, Record, records
from tests.support import kafka
from tests.support.kafka import Got, Sent
from tests.support.worker import Running, run_verb, wait_for

APP = "identity"
_CLOUD_EVENT = ["header:ce_source", "header:ce_id"]
ADDRESSES: list[dict[str, Any]] = [
    {"name": "aged", "partitions": 1, "id_max_age": 10},
    {"name": "promised", "partitions": 1, "id_cache_size": 2, "id_min_age": "10s", "id_cache_size_max": 6},
    {"name": "parts-events", "partitions": 1, "duplicate_id_from": _CLOUD_EVENT},
    {"name": "parts-verbs", "partitions": 1, "duplicate_id_from": _CLOUD_EVENT},
    {"name": "parts-outbox", "partitions": 1, "duplicate_id_from": "header:id"},
    {"name": "parts-orders", "partitions": 1, "duplicate_id_from": ["key", "value:/order/id"]},
    {"name": "parts-strict", "partitions": 1, "duplicate_id_from": ["header:a", "header:b"], "duplicate_id_missing": "quarantine"},
]  # fmt: skip


def offsets(got: list[Got]) -> list[int]:
    """Input offsets of accepted records."""
    return [int(item.source.rsplit("/", 1)[1]) for item in got]


def test_an_old_id_no_longer_counts(running: Running) -> None:
    """An ID whose original is older than id_max_age, by the records' timestamps, is accepted again."""
    start = 1_700_000_000_000
    records = [
        Sent(b"a", b"g", timestamp=start),
        Sent(b"a", b"g", timestamp=start + 10_000),
        Sent(b"a", b"g", timestamp=start + 10_001),
        Sent(b"a", b"g", timestamp=start + 20_001),
    ]
    first = running.outcome("aged", records)
    second = running.outcome("aged", [Sent(b"a", b"g", timestamp=start + 20_002)])

    assert offsets(first) == [0, 2]
    assert offsets(second) == [0, 2, 4]


def _ring(running: Running, address: str) -> dict[str, Any]:
    """Return the only ring of an address, as ``rings show`` prints it."""
    done = run_verb("rings", "show", address, "--json", "--config", str(running.worker._config))
    ring: dict[str, Any] = json.loads(done.stdout)["addresses"][address][0]
    return ring


def test_a_young_id_is_kept(running: Running) -> None:
    """An ID younger than id_min_age counts beyond id_cache_size; what id_cache_size_max pushes out is counted and shown."""
    start = 1_700_000_000_000
    records = [Sent(b"%d" % number, b"g", timestamp=start) for number in range(5)]
    records += [
        Sent(b"0", b"g", timestamp=start + 10_000),
        Sent(b"0", b"g", timestamp=start + 10_001),
        Sent(b"4", b"g", timestamp=start + 10_001),
    ]
    assert offsets(running.outcome("promised", records)) == [0, 1, 2, 3, 4, 6]
    shown = _ring(running, "promised")
    assert (shown["capacity"], shown["promise"]["holds"], shown["promise"]["coverage_broken"]) == (6, True, 0)

    more = [Sent(b"n%d" % number, b"g", timestamp=start + 10_001) for number in range(7)]
    running.outcome("promised", more)
    shown = _ring(running, "promised")
    assert (shown["size"], shown["promise"]["holds"], shown["promise"]["coverage_broken"]) == (6, False, 2)
    wait_for(
        lambda: 'ringfence_coverage_broken_total{address="promised"} 2.0' in running.worker.page("/metrics"),
        lambda: running.worker.page("/metrics"),
    )
    assert "2 IDs younger than id_min_age = 10s left its ring" in running.worker.log()


STRUCTURED = ("content-type", b"application/cloudevents+json; charset=UTF-8")


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


def test_ids_as_people_have_them(running: Running) -> None:
    """Only all parts together are an ID; a message that lacks one passes unchecked, or goes to quarantine with the reason."""
    events = [
        _event("/a", "1", "binary"), _event("/b", "1", "binary"), _event("/a", "2", "binary"),
        _event("/a", "1", "structured"), _event("/c", "1", "structured"), _event("/c", "1", "binary"),
        Sent(None, b"g", b"{}", (("ce_id", b"1"),)), Sent(None, b"g", b"{}", (("ce_id", b"1"),)),
    ]  # fmt: skip
    assert offsets(running.outcome("parts-events", events)) == [0, 1, 2, 4, 6, 7]
    quoted = [Sent(None, b"g", b"v", (("id", value),)) for value in (b'"8f2"', b"8f2", b'"8f2"', b"8f2")]
    assert offsets(running.outcome("parts-outbox", quoted)) == [0, 1]
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
    assert offsets(running.outcome("parts-orders", orders)) == [0, 2, 3, 4, 6, 7]
    strict = [
        Sent(None, b"g", b"v", tuple((name, b"1") for name in present)) for present in ("ab", "a", "ab", "b")
    ]
    assert offsets(running.outcome("parts-strict", strict)) == [0]
    refused = running.read("parts-strict.quarantine")
    assert [dict(item.headers)["_RF_REASON"] for item in refused] == [
        b'no duplicate ID: the header %b is missing or empty (duplicate_id_missing = "quarantine")' % name
        for name in (b"b", b"a")
    ]
    assert _judged(running.bootstrap, "parts-events") == []


def _judged(bootstrap: str, address: str) -> list[Any]:
    """Return the findings of the fault checker in one address."""

    def read(topic: str) -> list[Record]:
        return records(topic, kafka.read_all(bootstrap, topic, 1))

    history = History(address, 1, 20_000, lambda _key: 0, id_of=_id_of_event)
    history.inputs, history.accepted = read(address), read(f"{address}.accepted")
    return check(history)


def test_verbs_take_the_parts(running: Running, tmp_path: Path) -> None:
    """``send`` needs the parts, ``rings show`` shows them, and ``rings find`` takes them one by one or as a whole."""
    name, options = "parts-verbs", ("--config", str(running.worker._config))
    lines = tmp_path / "lines.jsonl"
    line = {"headers": {"ce_source": "/my shop", "ce_id": "42"}, "group": "g", "value": "v"}
    lines.write_text(f"{json.dumps(line)}\n" * 2)
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
