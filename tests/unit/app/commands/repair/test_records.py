import json
from hashlib import blake2b

import pytest

from app.commands.repair.records import Place, Selection, Wanted, parse, parse_place, place_of
from ringfence_kafka.errors import ConfigurationError
from tests.support.records.refused import Fetched, refused_record


def test_what_a_record_says() -> None:
    """The last of repeated headers counts, and a malformed header counts as missing."""
    headers = (
        ("_RF_REASON", b"no"), ("_RF_REASON", b"why"), ("_RF_CONSUMER_GROUP", b"g"), ("_RF_ATTEMPTS", b"5"),
        ("__dlq.errors.topic", b"t"), ("__dlq.errors.partition", b"2"), ("__dlq.errors.offset", b"9"),
        ("_RF_REDRIVEN", b"2"),
    )  # fmt: skip
    found = parse("q", Fetched(headers))
    malformed = (("_RF_REDRIVEN", b"-1"), ("__dlq.errors.offset", b"9"), ("_RF_REASON", None))
    broken = parse("q", Fetched(malformed))

    assert (found.place, found.reason, found.redriven) == (Place("q", 1, 7), "why", 2)
    assert (found.consumer_group, found.attempts, found.accepted) == ("g", 5, Place("t", 2, 9))
    assert (broken.redriven, broken.accepted, broken.reason) == (0, None, "")


def test_digests() -> None:
    """A digest that stands for a value is distinguished from values, and matches one value alone."""
    value = b"v" * 1_000
    text = json.dumps({"bytes": 1_000, "blake2b_256": blake2b(value, digest_size=32).hexdigest()}).encode()
    digest = parse("q", Fetched(value=text)).digest

    assert digest is not None
    assert [digest.matches(other) for other in (value, value + b"v", None)] == [True, False, False]
    odd = b'{"bytes": true, "blake2b_256": "ab"}'
    for other in (b"{}", b"[1]", b"{no", None, odd, text[:-1] + b', "more": 1}'):
        assert parse("q", Fetched(value=other)).digest is None


def test_selection() -> None:
    for takes, leaves in (
        (Selection(), Selection(reason="takes", group=b"h")),
        (Selection(reason="TAKES"), Selection(reason="other")),
        (Selection(group=b"g"), Selection(group=b"h")),
        (Selection(older_s=9), Selection(older_s=11)),
        (Selection(newer_s=11), Selection(newer_s=9)),
        (Selection(at=[(1, 7)]), Selection(at=[(7, 1)])),
        (Selection(consumer_group="c"), Selection(consumer_group="d")),
    ):
        refused = refused_record(reason="5 bytes, T takes 4", consumer_group="c")

        assert takes.matches(refused, b"g", 1_010_000)
        assert not leaves.matches(refused, b"g", 1_010_000)


def test_what_is_typed() -> None:
    """A malformed place is an error that shows a valid one. A place is ``<topic>/<partition>/<offset>``."""
    assert place_of("a/b/0/12") == Place("a/b", 0, 12)
    assert {place_of(text) for text in ("t/0/x", "t/0", "", "/0/1", "t/-1/2")} == {None}
    assert parse_place("0/17") == (0, 17)
    for text in ("17", "0/x"):
        with pytest.raises(ConfigurationError, match="write"):
            parse_place(text)


def test_of_other_sources() -> None:
    """Records refused by bridges of other applications with the same name are not selected, but counted."""
    wanted = Wanted(Selection(), lambda _: None, app_id="bremen")
    anybodys = Wanted(Selection(), lambda _: None)
    takes = {b"bremen": True, b"kassel": False, b"": True, b"zwickau": False}
    for app in (*takes, b"kassel"):
        record = Fetched((("_RF_BRIDGE_APP", app),) if app else ())
        assert wanted.takes(parse("q", record), record, 0.0, is_open=True) is takes[app]
        assert anybodys.takes(parse("q", record), record, 0.0, is_open=True)

    assert ": kassel: 2, zwickau: 1. " in wanted.passed.foreign_note
    assert wanted.passed.count == 0
