"""Outputs besides the accepted topic: diverted duplicates, and records that are refused for good."""

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import pytest

from tests.support import kafka
from tests.support.kafka import Got, Sent
from tests.support.worker import Running, configure, worker

APP = "outputs"
VALUES = ("conflicting", "by-id-and-value")
ADDRESSES: list[dict[str, Any]] = [
    {"name": "diverting", "partitions": 1, "duplicates": "divert"},
    {"name": "spread", "partitions": 3, "duplicates": "divert"},
    {"name": "conflicting", "partitions": 1, "on_conflict": "divert"},
    {"name": "by-id-and-value", "partitions": 1, "on_conflict": "accept"},
    {"name": "small", "partitions": 1},
    {"name": "smaller", "partitions": 1},
    {
        "name": "named", "partitions": 1, "duplicates": "divert", "input_topic": "named-in",
        "accepted_topic": "named-out", "duplicates_topic": "named-twice", "quarantine_topic": "named-bad",
    },
]  # fmt: skip


@pytest.fixture(scope="module")
def running(broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One worker over all addresses of this module."""
    bootstrap = broker.bootstrap_servers
    config = configure(tmp_path_factory.mktemp(APP), bootstrap, APP, ADDRESSES)
    kafka.alter_topic(bootstrap, "small.accepted", "max.message.bytes", "5000")
    kafka.alter_topic(bootstrap, "smaller.accepted", "max.message.bytes", "5000")
    kafka.alter_topic(bootstrap, "smaller.quarantine", "max.message.bytes", "3000")
    with worker(config, APP) as process:
        yield Running(bootstrap, process, ADDRESSES, APP)


def header(got: Got, name: str) -> str | None:
    value = dict(got.headers).get(name)
    return None if value is None else value.decode()


def test_duplicates_name_their_original(running: Running) -> None:
    """A diverted duplicate is unchanged and names its source and the place of its original."""
    first = [
        Sent(b"a", b"g", b"1"),
        Sent(b"a", b"g", b"2", (("h", b"x"),), 1_600_000_000_000),
        Sent(b"b", b"g", b"3"),
    ]
    running.outcome("diverting", first)
    running.outcome("diverting", [Sent(b"b", b"g", b"4"), Sent(b"a", b"g", b"5")])
    got = running.read("diverting.duplicates")

    assert [item.value for item in got] == [b"2", b"4", b"5"]
    assert [header(item, "_RF_SOURCE") for item in got] == [f"diverting/0/{number}" for number in (1, 3, 4)]
    assert [header(item, "_RF_ORIGINAL") for item in got] == [f"diverting/0/{number}" for number in (0, 2, 0)]
    assert (got[0].key, got[0].timestamp, got[0].headers[0]) == (b"g", 1_600_000_000_000, ("h", b"x"))
    assert len(running.read("diverting.accepted")) == 2


@pytest.fixture(scope="module")
def restarted(running: Running) -> Running:
    """Send IDs with several values to two addresses, before and after a kill of the worker."""
    first = [Sent(b"a", b"g", b"1"), Sent(b"a", b"g", b"2"), Sent(b"a", b"g", b"1"), Sent(b"b", b"g", b"1")]
    again = [Sent(b"b", b"g", b"1"), Sent(b"b", b"g", b"3"), Sent(b"a", b"g", b"2"), Sent(b"c", b"g", b"3")]
    for address in VALUES:
        running.outcome(address, first)
    running.worker.kill()
    running.worker.start()
    running.worker.wait_ready()
    for address in VALUES:
        running.outcome(address, again)
    return running


def test_conflicts_are_diverted(restarted: Running) -> None:
    """A known ID with another value goes to the duplicates topic, and a plain duplicate is dropped, in one batch and later."""
    diverted = restarted.read("conflicting.duplicates")

    assert [item.value for item in restarted.read("conflicting.accepted")] == [b"1", b"1", b"3"]
    assert [item.value for item in diverted] == [b"2", b"3", b"2"]
    originals = [header(item, "_RF_ORIGINAL") for item in diverted]
    assert originals == [f"conflicting/0/{number}" for number in (0, 3, 0)]
    assert {header(item, "_RF_VERDICT") for item in diverted} == {"CONFLICT"}


def test_values_of_an_id_are_accepted_once_each(restarted: Running) -> None:
    """By value, an ID with another value is another message, also after a restart."""
    accepted = [(item.id, item.value) for item in restarted.read("by-id-and-value.accepted")]

    assert accepted == [(b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"b", b"3"), (b"c", b"3")]


def test_original_in_another_partition(running: Running) -> None:
    """The original of a forwarded duplicate has the place of its first arrival, not that of its forwarding."""
    record = Sent(b"a", None, b"v")
    for partition in range(3):
        running.outcome("spread", [record], partition)
    got = running.read("spread.duplicates", 3)
    accepted = running.read("spread.accepted", 3)

    assert len(accepted) == 1
    assert len(got) == 2
    assert {header(item, "_RF_ORIGINAL") for item in got} == {accepted[0].source}


def test_too_large_goes_to_quarantine(running: Running) -> None:
    """A record that its output does not take is set aside with the reason; the rest of the batch flows, in order.

    Its ID is not remembered: the same message, made smaller, is accepted.
    """
    records = [
        Sent(b"1", b"g"),
        Sent(b"2", b"g", b"x" * 9_000, (("h", b"y"),)),
        Sent(b"3", b"g"),
        Sent(b"2", b"g", b"x"),
    ]
    got = running.outcome("small", records)
    quarantined = running.read("small.quarantine")

    assert [item.id for item in got] == [b"1", b"3", b"2"]
    assert [(item.key, item.value, item.headers[0]) for item in quarantined] == [
        (b"g", b"x" * 9_000, ("h", b"y"))
    ]
    assert header(quarantined[0], "_RF_SOURCE") == "small/0/1"
    reason = header(quarantined[0], "_RF_REASON") or ""
    assert reason.endswith("small.accepted takes max.message.bytes = 5000")
    assert running.worker.health()[0] == 200


def test_what_quarantine_does_not_take_is_named(running: Running) -> None:
    """A value too large even for quarantine is replaced by its size and digest; headers too large by ours alone."""
    value, large = b"x" * 9_000, b"y" * 9_000
    got = running.outcome(
        "smaller", [Sent(b"1", b"g", value), Sent(b"2", b"g", b"v", (("h", large),)), Sent(b"3", b"g")]
    )
    quarantined = running.read("smaller.quarantine")

    assert [item.id for item in got] == [b"3"]
    assert [json.loads(item.value or b"") for item in quarantined] == [
        {"bytes": len(data), "blake2b_256": blake2b(data, digest_size=32).hexdigest()}
        for data in (value, b"v")
    ]
    assert [item.key for item in quarantined] == [b"g", None]
    assert [name for name, _ in quarantined[1].headers] == ["_RF_SOURCE", "_RF_REASON"]


def test_many_small_records_fit_a_small_topic(running: Running) -> None:
    """A topic's limit is on record batches: a stretch of small records is cut to fit, and none is set aside."""
    before = len(running.settled("small"))
    got = running.outcome("small", [Sent(b"many-%d" % index, b"g", b"x" * 1_000) for index in range(100)])

    assert len(got) - before == 100


def test_topic_names_are_configurable(running: Running) -> None:
    """Input, accepted, duplicates and quarantine topics may have names of their own."""
    kafka.send(running.bootstrap, "named-in", [Sent(b"a", b"g"), Sent(b"a", b"g")])
    kafka.wait_count(running.bootstrap, "named-twice", 1)

    assert [item.source for item in running.read("named-out")] == ["named-in/0/0"]
    assert [header(item, "_RF_ORIGINAL") for item in running.read("named-twice")] == ["named-in/0/0"]
    assert kafka.end_offsets(running.bootstrap, "named-bad") == [0]
