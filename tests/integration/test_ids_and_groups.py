"""Bytes that are a message's ID and its group, address by address."""

import json
from typing import Any

from tests.support.kafka import Got, Sent
from tests.support.worker import Running, run_verb, wait_for

APP = "identity"
ADDRESSES: list[dict[str, Any]] = [
    {"name": "by-key", "partitions": 1, "duplicate_id_from": "key"},
    {"name": "by-value", "partitions": 1, "duplicate_id_from": "value"},
    {"name": "by-header", "partitions": 1},
    {"name": "grouped", "partitions": 1, "group_header": "GROUP"},
    {"name": "renamed", "partitions": 1, "group_header": "GROUP", "default_group": "nobody"},
    {"name": "aged", "partitions": 1, "id_max_age": 10},
    {"name": "promised", "partitions": 1, "id_cache_size": 2, "id_min_age": "10s", "id_cache_size_max": 6},
    {"name": "identity-off", "partitions": 1, "id_cache_size": 0},
]


def offsets(got: list[Got]) -> list[int]:
    """Input offsets of accepted records."""
    return [int(item.source.rsplit("/", 1)[1]) for item in got]


def test_id_is_the_key(running: Running) -> None:
    """The key is the ID with duplicate_id_from = "key"; a null or empty key is none; headers do not matter."""
    records = [
        Sent(b"x", b"a"),
        Sent(b"y", b"a"),
        Sent(b"x", b"b"),
        Sent(None, None),
        Sent(None, None),
        Sent(None, b""),
        Sent(None, b""),
    ]
    got = running.outcome("by-key", records)

    assert offsets(got) == [0, 2, 3, 4, 5, 6]


def test_id_is_the_value(running: Running) -> None:
    """Equal values are one message with duplicate_id_from = "value", whatever key and headers; a null or empty value gives none."""
    large = b"x" * 100_000
    records = [
        Sent(b"1", b"g", b"same"), Sent(b"2", b"g", b"same"), Sent(None, b"g", large), Sent(None, b"g", large),
        Sent(None, b"g", None), Sent(None, b"g", None), Sent(None, b"g", b""), Sent(None, b"g", b""),
    ]  # fmt: skip
    got = running.outcome("by-value", records)

    assert offsets(got) == [0, 2, 4, 5, 6, 7]


def test_headers_that_repeat_are_null_or_long(running: Running) -> None:
    """The last of a repeated header wins; a null one gives way to the second name; long IDs differ in any byte."""
    first, second = "_AMQ_DUPL_ID", "_HQ_DUPL_ID"
    records = [
        Sent(headers=((first, b"a"), (first, b"b"))),
        Sent(headers=((first, b"b"),)),
        Sent(headers=((first, b"a"),)),
        Sent(headers=((first, None), (second, b"c"))),
        Sent(headers=((second, b"c"),)),
        Sent(headers=((first, b"d"), (first, None))),
        Sent(headers=((first, b"d"),)),
        Sent(b"x" * 256),
        Sent(b"x" * 257),
        Sent(b"x" * 256 + b"y"),
        Sent(b"x" * 257),
    ]
    got = running.outcome("by-header", records)

    assert offsets(got) == [0, 2, 3, 5, 6, 7, 8, 9]


def test_group_is_a_header(running: Running) -> None:
    """The accepted record is keyed by the group header; the input key, where it differs, is kept in ``_RF_KEY``."""
    records = [
        Sent(b"1", b"key", headers=(("GROUP", b"g"),)),
        Sent(b"2", b"g", headers=(("GROUP", b"g"),)),
        Sent(b"3", None, headers=(("GROUP", b"g"),)),
        Sent(b"4", b"key"),
        Sent(b"5", b"key", headers=(("GROUP", b""),)),
        Sent(b"6", b"key", headers=(("GROUP", None), ("_RF_KEY", b"forged"))),
    ]
    got = running.outcome("grouped", records)

    assert [(item.id, item.key) for item in got] == [
        (b"1", b"g"), (b"2", b"g"), (b"3", b"g"), (b"4", b"qpid.no-group"), (b"5", b"qpid.no-group"),
        (b"6", b"qpid.no-group"),
    ]  # fmt: skip
    keys = [[value for name, value in item.headers if name == "_RF_KEY"] for item in got]
    assert keys == [[b"key"], [], [None], [b"key"], [b"key"], [b"key"]]


def test_default_group_is_configurable(running: Running) -> None:
    """The name of the default group can be overridden (Qpid)."""
    got = running.outcome("renamed", [Sent(b"1", b"key")])

    assert [item.key for item in got] == [b"nobody"]


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


def test_counters_by_verdict(running: Running) -> None:
    """``/metrics`` counts messages by address and verdict, and shows ring, coverage, lag and batch seconds."""
    running.outcome("by-value", [Sent(None, b"g", b"metric"), Sent(None, b"g", b"metric")])
    running.outcome("identity-off", [Sent(b"a", b"g"), Sent(b"a", b"g")])
    # A lane counts a batch when all of it is done, a moment after others see the commit.
    wait_for(
        lambda: (
            'ringfence_messages_total{address="identity-off",verdict="unchecked"} 2.0'
            in running.worker.page("/metrics")
        ),
        lambda: running.worker.page("/metrics"),
    )
    text = running.worker.page("/metrics")

    for line in (
        'ringfence_messages_total{address="by-value",verdict="accepted"}',
        'ringfence_messages_total{address="by-value",verdict="duplicates"}',
        'ringfence_messages_total{address="by-value",verdict="unchecked"}',
        'ringfence_forwarded_total{address="by-value"} 0.0',
        'ringfence_quarantined_total{address="by-value"} 0.0',
        'ringfence_fenced_total{address="by-value"}',
        'ringfence_retries_total{address="by-value"}',
        'ringfence_gap_records_total{address="by-value"} 0.0',
        'ringfence_lane_open{address="by-value",lane="by-value-0"} 1.0',
        'ringfence_ring_ids{address="by-value",lane="by-value-0"}',
        'ringfence_ring_capacity_ids{address="by-value",lane="by-value-0"} 20000.0',
        'ringfence_ring_covered_seconds{address="by-value",lane="by-value-0"}',
        'ringfence_lag_records{address="by-value",lane="by-value-0"}',
        'ringfence_lane_next_offset{address="by-value",lane="by-value-0"}',
        'ringfence_batch_seconds_bucket{address="by-value",le="+Inf"}',
    ):
        assert line in text, f"{line} is missing in\n{text}"
