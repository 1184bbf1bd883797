"""IDs of several parts: a run finds in columns what workers find in bytes."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from reconcile.spark import envelopes
from reconcile.spark.columns import Dialect, id_of
from ringfence_kafka.protocol.duplicate_id import DuplicateIds, Forms, checked_forms

KIND = ("content-type", b"application/cloudevents+json; charset=UTF-8")
VALUES: list[bytes | None] = [
    None, b"", b"x", b'{"id":"a"}', b' {"id" : "a" } ', b'{"id":"b","id":"a"}', b'{"id":12345678901234567890123}', b'{"id":7}',
    b'{"id":true}', b'{"id":null}', b'{"id":""}', b'{"id":{"a": 1}}', b'{"id":{}}', b'{"id":[1, 2]}', b'{"id":[]}',
    b'{"id":"{\\"a\\":1}"}', b'{"id":"[1]"}', b'{"ID":"a"}', b'{"id":"a"} x', b'{"id":"a"},{"id":"b"}', b'{"id":"a"}]',
    b'{"id":"a","b":', b'{"id":"a","b":NaN}', b'{"id":"a",}', b'{"id":01}', b"{'id':'a'}", b'{"id":"a","b":"\xff"}',
    b'\xef\xbb\xbf{"id":"a"}', '{"id":"gr\u00f6\u00dfe \\ud83d\\ude00"}'.encode(), b'["id"]', b'"id"', b'[{"id":"a"}]',
    b'{"list":[{"id":"a"},{"id":"b"}]}', b'{"list":{"1":{"id":"c"}}}', b'{"list":[1,{"id":{}}]}', b'{"list":[1]}', b'{"list":"x"}',
    b'{"a/b":{"~":"x"}}', b'{"a/b":"x"}', b'{"x":[1,[2]],"id":"a"}',
    b'{"id":"\\ud800"}', b'{"id":"a\\uDC00?"}', b'{"id":"\\\\ud800"}', b'{"id":"\\\\\\ud800"}', b'{"id":"a?","b":"\\ud83d\\ud83d\\ude00"}',
    b'{"id":"\\ud83d\\ude00\\ude00"}', b'{"id":"\\ud83d\\ude00\\ud83d\\ude01?"}',
    b'{"b":%s,"id":"a"}' % (b"7" * 5_000), b'{"id":%s}' % (b"7" * 5_000), b'{"%s":1,"id":"a"}' % (b"n" * 50_000),
    b'{"b":%s,"id":"a"}' % (b"[" * 900 + b"]" * 900), b'{"b":"\\ud800","id":"a"}',
]  # fmt: skip
FORMS: list[Any] = ["value:/id", "value:/list/1/id", "value:/a~1b/~0", "header:ce_id", "header:a", ["header:a", "header:ce_id", "value:/id"]]  # fmt: skip


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> list[tuple[Forms, list[bytes | None], list[bytes | None]]]:
    """Of each form the IDs in columns, and those of workers: one job for all."""
    headers: list[list[tuple[str, bytes | None]] | None] = [None, [("a", b"1")], [("a", b""), KIND], [("a", b"1"), ("ce_id", b"e"), KIND]]  # fmt: skip
    records = [(several, value) for several in headers for value in VALUES]
    rows = [(number, b"k", value, several) for number, (several, value) in enumerate(records)]
    frame = spark.createDataFrame(rows, f"number int, key binary, value binary, headers {envelopes.HEADERS}")
    forms = [checked_forms(item) for item in FORMS]
    columns = [id_of(Dialect((), item, "", "")).alias(f"c{number}") for number, item in enumerate(forms)]
    collected = frame.select("number", *columns).orderBy("number").collect()
    readers = [DuplicateIds(item, ()) for item in forms]
    return [
        (
            item,
            [None if row[f"c{number}"] is None else bytes(row[f"c{number}"]) for row in collected],
            [readers[number].id_of(several or [], b"k", value) for several, value in records],
        )
        for number, item in enumerate(forms)
    ]


def test_a_run_finds_the_ids_of_workers(
    found: list[tuple[Forms, list[bytes | None], list[bytes | None]]],
) -> None:
    """IDs of headers, JSON pointers and CloudEvents are those that a worker finds, and missing where they are missing to it."""
    for forms, columns, workers in found:
        assert columns == workers, forms
        assert None in columns
        assert any(columns)


def test_digests_are_parts(spark: SparkSession) -> None:
    """A digest stands for a value that is a part: equal values give equal IDs, and the parts stay apart."""
    rows = [(b"k", b"v"), (b"k", b"v"), (b"k", b"w"), (b"kv", b"w"), (b"k", b""), (None, b"v")]
    frame = spark.createDataFrame(rows, "key binary, value binary").coalesce(1)
    ids = [row[0] for row in frame.select(id_of(Dialect((), ("key", "value"), "", ""))).collect()]

    assert ids[0] == ids[1]
    assert len({bytes(item) for item in ids[:4]}) == 3
    assert ids[4:] == [None, None]
