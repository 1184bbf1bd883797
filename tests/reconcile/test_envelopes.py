"""Envelopes become rows with the same bytes that workers read, by other code."""

import json
import random
from base64 import b64encode
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from agents.decision import envelope
from agents.decision.envelope import MalformedEnvelopeError
from reconcile.spark.envelopes import PARTS_MAX, opened

FORM = ("_RF_TX", b"json/1")
Headers = list[tuple[str, bytes | None]]
_KAFKA = "offset bigint, key binary, value binary, headers array<struct<key:string,value:binary>>"


class Opener:
    """Reader of values as envelopes."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def rows(self, *values: bytes | None, headers: Headers | None = None) -> list[list[Row]]:
        """Return the rows of each envelope, in order."""
        records = [(n, b"k", value, [FORM] if headers is None else headers) for n, value in enumerate(values)]
        frame = self._spark.createDataFrame(records, _KAFKA)
        found = opened(frame, F.lit("orders"), F.array(F.lit("payments"))).collect()
        by_offset: list[list[Row]] = [[] for _ in values]
        for row in sorted(found, key=lambda item: (item["offset"], item["part_number"])):
            by_offset[row["offset"]].append(row)
        return by_offset

    def counts(self, *values: bytes | None, headers: Headers | None = None) -> list[int | None]:
        """Count the parts of each envelope; all its rows agree."""
        found = []
        for rows in self.rows(*values, headers=headers):
            (parts,) = {row["parts"] for row in rows}
            assert len(rows) == 1 + (parts or 0)
            found.append(parts)
        return found


@pytest.fixture
def opener(spark: SparkSession) -> Opener:
    return Opener(spark)


def _written(*parts: Any) -> bytes:
    return json.dumps({"parts": parts}).encode()


def _content(row: Row) -> tuple[str | None, bytes | None, bytes | None, Headers]:
    key, value = (None if row[name] is None else bytes(row[name]) for name in ("key", "value"))
    headers = [
        (item["key"], None if item["value"] is None else bytes(item["value"])) for item in row["headers"]
    ]
    return row["part_address"], key, value, headers


def test_parts(opener: Opener) -> None:
    """Text, base64, null, empty and missing stay distinct; repeated header names stay, in their order."""
    text = _written(
        {"key": "k\u00fc\U0001f600", "value": "", "headers": [{"name": "a", "value": "2"}, {"name": "a"}, {"name": "a", "value": ""}]},
        {"address": "payments", "key_base64": "AP8=", "value_base64": "", "headers": [{"name": "", "value_base64": "AAE="}]},
        {"address": None, "key": None, "key_base64": None, "value": "\x00", "headers": None},
        {},
    )  # fmt: skip
    (rows,) = opener.rows(text)

    itself, *parts = rows
    assert _content(itself) == (None, b"k", text, [FORM])
    assert [row["part_number"] for row in rows] == [0, 1, 2, 3, 4]
    assert [_content(part) for part in parts] == [
        ("orders", "k\u00fc\U0001f600".encode(), b"", [("a", b"2"), ("a", None), ("a", b"")]),
        ("payments", b"\x00\xff", b"", [("", b"\x00\x01")]),
        ("orders", None, b"\x00", []),
        ("orders", None, None, []),
    ]


def test_what_cannot_be_read(opener: Opener) -> None:
    """An unreadable envelope stays a record without parts: it has to be in quarantine."""
    refused = [
        None, b"", b"no JSON", b"\xff", b"[]", b'{"parts": {}}', b'{"parts": null}', _written(), _written(None), _written("text"),
        _written({"value": "a", "value_base64": "YQ=="}), _written({"key": "a", "key_base64": "YQ=="}),
        _written({"key_base64": "not base64!"}), _written({"address": "elsewhere"}), _written({"address": ""}),
        _written({"key_base64": "YWJj="}), _written({"value_base64": "YWJj=="}), _written({"value_base64": "YWJ"}), _written({"value_base64": "Y Q=="}), _written({"value_base64": "YWJj\n"}),
        _written({"headers": [{"value": "a"}]}), _written({"headers": [None]}),
        _written({"headers": [{"name": "_RF_SOURCE", "value": "a"}]}),
        _written({"headers": [{"name": "a", "value": "a", "value_base64": "YQ=="}]}),
        _written({}, {"headers": [{"name": "a", "value_base64": "?"}]}),
        _written(*[{}] * (PARTS_MAX + 1)),
    ]  # fmt: skip

    assert opener.counts(*refused) == [0] * len(refused)
    for value in refused:
        if value is None or b"elsewhere" not in value:
            with pytest.raises(MalformedEnvelopeError):
                envelope.decode(FORM[1], value)
    # The last header counts. A record without one is itself, whatever its value looks like.
    old = ("_RF_TX", b"old")
    kinds: list[tuple[Headers, int | None]] = [
        ([FORM, old], 0),
        ([("_RF_TX", None)], 0),
        ([old, FORM], 1),
        ([], None),
    ]
    for headers, count in kinds:
        assert opener.counts(_written({}), headers=headers) == [count]


def test_as_workers_read_them(opener: Opener) -> None:
    """The run reads envelopes as a worker does, for any envelope of seed 4711."""
    drawn = random.Random(4711)
    drawings = [{"parts": [_drawn_part(drawn) for _ in range(drawn.randint(1, 5))]} for _ in range(200)]
    values = [json.dumps(it, ensure_ascii=drawn.random() < 0.5).encode() for it in drawings]

    for value, (_, *parts) in zip(values, opener.rows(*values), strict=True):
        expected = envelope.decode(FORM[1], value)
        assert [_content(part) for part in parts] == [
            (part.address or "orders", part.key, part.value, list(part.headers)) for part in expected
        ]


def test_large_ones(opener: Opener) -> None:
    """The run reads an envelope of the most parts, and one that is longer than Spark reads strings by default."""
    many = _written(*({"value": f"{n}"} for n in range(PARTS_MAX)))
    long = _written({"value": "x" * 20_000_001})
    first, second = opener.rows(many, long)

    assert [bytes(row["value"]) for row in first[1:]] == [b"%d" % n for n in range(PARTS_MAX)]
    assert [len(row["value"] or b"") for row in second[1:]] == [20_000_001]


def _drawn_part(drawn: random.Random) -> dict[str, Any]:
    part = {**_drawn_bytes(drawn, "key"), **_drawn_bytes(drawn, "value")}
    if drawn.random() < 0.7:
        part["headers"] = drawn.choice([None, [
            {"name": _drawn_text(drawn), **_drawn_bytes(drawn, "value")} for _ in range(drawn.randint(0, 3))
        ]])  # fmt: skip
    if drawn.random() < 0.5:
        part["address"] = drawn.choice(["orders", "payments", None])
    return dict(drawn.sample(list(part.items()), len(part)))


def _drawn_bytes(drawn: random.Random, name: str) -> dict[str, Any]:
    match drawn.randrange(5):
        case 0:
            return {}
        case 1:
            return {name: None, f"{name}_base64": None}
        case 2:
            return {f"{name}_base64": b64encode(drawn.randbytes(drawn.randint(0, 9))).decode()}
        case _:
            return {name: _drawn_text(drawn), **({f"{name}_base64": None} if drawn.random() < 0.2 else {})}


def _drawn_text(drawn: random.Random) -> str:
    letters = 'ab"\\/\x00\x1f\n\x7f\x85\u00e9\u2028\ufeff\ufffe\U0001f600\U0010ffff'
    return "".join(drawn.choice(letters) for _ in range(drawn.randint(0, 6)))
