"""Records of today as bytes: a layout that changes needs another format, and a reader for both."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from reconcile.run.history.cut import Position
from reconcile.run.history.history import FORMAT, Run
from ringfence_client.handlers.retries import Failures
from ringfence_client.progress import progress_record
from ringfence_client.progress.progress_record import Progress, ProgressFormatError
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.protocol import stored_ids
from ringfence_kafka.protocol.hop import Source
from tables import codec
from tables.codec import FormatError, Origin, Route

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
META = {
    "format": 1, "capacity": 8, "head": 3, "floor": 0, "next_offsets": {"orders": 5}, "partition_counts": {"orders": 4},
    "incarnation": "i", "older": [], "persistent": True, "topic_ids": {}, "app": "shop", "address": "orders", "max_age_ms": 0,
    "rules": {"group_header": "g"},
}  # fmt: skip
RUN = {
    "format": FORMAT, "number": 2, "base": 1, "date": "2026-01-02", "verdict": "clean",
    "positions": {"orders": {"topic_id": TOPIC_ID, "origins": [1], "ends": [9]}},
    "accepted": {"orders": {"0": 4}}, "known": {"orders": {"0": 7}}, "complete": {"orders": True}, "summary": {},
    "held": {}, "consumed": {}, "earliest": {}, "rules": {}, "whole_since": {}, "app": "shop", "left": {}, "events_from": {},
    "cluster": "c", "leaves": {},
}  # fmt: skip
PROGRESS = {
    "format": 2, "next": 4, "reserved": 9, "holder": "h", "web": "", "state": "held", "token": 3, "delivered": 6, "running": 1,
    "beat": 8, "purged": {}, "topic_id": "t", "finished": "AQ==", "attempts": {"5": 2}, "failures": {"5": [1, 77]},
}  # fmt: skip


def _lacking(document: dict[str, Any], *optional: str) -> Iterator[tuple[str, str]]:
    """Yield each key that must be there, and the record without it."""
    for key in sorted(document.keys() - {"format", *optional}):
        yield key, json.dumps({name: value for name, value in document.items() if name != key})


def test_a_ring_record() -> None:
    """A ring record's key has kind, capacity and slot; its value has version, sequence, partition, offset, timestamp and ID."""
    key = bytes.fromhex("01 00000008 00000002")
    value = bytes.fromhex("01 000000000000000a 00000003 0000000000000004 0000000000000005 00 6d31")

    slot = codec.decode_ring(key, value)

    assert (slot.capacity, slot.sequence, slot.id) == (8, 10, stored_ids.encode_id(b"m1"))
    assert slot.origin == Origin(3, 4, 5)
    assert (codec.ring_key(8, 10), codec.ring_value(10, slot.id, slot.origin)) == (key, value)


def test_a_hops_record() -> None:
    """A hops record's key has kind, input partition and source; its value has version, floor and runs of offsets above it."""
    route = Route(Source("b", TOPIC_ID, 7), 2)
    key = bytes.fromhex("03 00000002") + f"b/{TOPIC_ID}/7".encode()

    assert codec.hops_key(route) == key
    assert codec.decode_hops(key, bytes.fromhex("01 0000000000000009 01 02 01")) == (route, 9, [(11, 12)])
    bitmap = bytes.fromhex("01 0000000000000009 02 04")
    assert codec.hops_value(9, [11]) == bitmap
    assert codec.decode_hops(key, bitmap) == (route, 9, [(11, 12)])


def test_a_meta_record() -> None:
    """A meta record is JSON with the names of its fields. One that lacks a field is refused, because nothing is assumed."""
    meta = codec.decode_meta(json.dumps(META).encode())

    assert (meta.head, meta.next_offsets, meta.app, meta.address) == (3, {"orders": 5}, "shop", "orders")
    assert meta.max_age_ms == 0
    assert json.loads(codec.encode_meta(meta)) == META
    for key, text in _lacking(META, "rules"):
        with pytest.raises(FormatError, match=f"it lacks {key}"):
            codec.decode_meta(text.encode())


def test_a_run() -> None:
    """A run is JSON with the names of its fields, and lanes are texts. One that lacks a field counts as damaged."""
    night = Run.from_json(json.dumps(RUN), acknowledged=False)

    assert night.positions == {"orders": Position(TOPIC_ID, (1,), (9,))}
    assert (night.accepted, night.known, night.base) == ({"orders": {0: 4}}, {"orders": {0: 7}}, 1)
    assert json.loads(night.to_json()) == RUN
    for key, text in _lacking(RUN):
        with pytest.raises(ValueError, match=f"a run without {key}"):
            Run.from_json(text, acknowledged=False)


@pytest.mark.parametrize("found", [1, FORMAT - 1, FORMAT + 1, "8", None])
def test_a_run_of_another_version(found: object) -> None:
    """A run of another format is refused with the way out, and is not used."""
    with pytest.raises(
        ConfigurationError, match=r"name another reconcile.state_dir. The next run then begins"
    ):
        Run.from_json(json.dumps(RUN | {"format": found}), acknowledged=False)


def test_a_progress_record() -> None:
    """A progress record is JSON with packed finished offsets. One that lacks a field is refused with the way out, and the partition waits."""
    progress = progress_record.decode(json.dumps(PROGRESS).encode())

    assert progress == Progress(
        4, finished=[], attempts={5: 2}, failures={5: Failures(1, 77)}, reserved=9, holder="h", state="held", token=3, delivered=6, running=1, beat=8,
        topic_id="t",
    )  # fmt: skip
    assert json.loads(progress_record.encode(progress)) == PROGRESS
    for _, text in _lacking(PROGRESS):
        with pytest.raises(ProgressFormatError, match="ringfence consumers forget"):
            progress_record.decode(text.encode())
