"""The content of refused records, and the selection of records by a verb."""

import json
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

import pytest

from app.commands.repair.records import Place, Selection, Wanted, parse, parse_place, place_of, span
from ringfence_kafka.errors import ConfigurationError
from tests.support.refused import Fetched, refused_record


def test_what_a_record_says() -> None:
    """The last of repeated headers counts, and a malformed header counts as missing."""
    place_headers = (
        ("__dlq.errors.topic", b"t"),
        ("__dlq.errors.partition", b"2"),
        ("__dlq.errors.offset", b"9"),
    )
    ours = (
        ("_RF_REASON", b"no"),
        ("_RF_REASON", b"why"),
        ("_RF_CONSUMER_GROUP", b"g"),
        ("_RF_ATTEMPTS", b"5"),
    )
    found = parse("q", Fetched((*ours, *place_headers, ("_RF_REDRIVEN", b"2"))))
    broken = parse(
        "q", Fetched((("_RF_REDRIVEN", b"-1"), ("__dlq.errors.offset", b"9"), ("_RF_REASON", None)))
    )

    assert (found.place, found.reason, found.redriven) == (Place("q", 1, 7), "why", 2)
    assert (found.consumer_group, found.attempts, found.accepted) == ("g", 5, Place("t", 2, 9))
    assert (broken.redriven, broken.accepted, broken.reason) == (0, None, "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/b/0/12", Place("a/b", 0, 12)),
        ("t/0/x", None),
        ("t/0", None),
        ("", None),
        ("/0/1", None),
        ("t/-1/2", None),
    ],
)
def test_places(text: str, expected: Place | None) -> None:
    """A place is ``<topic>/<partition>/<offset>``, and no other form is accepted."""
    assert place_of(text) == expected


def test_digests() -> None:
    """A digest that stands for a value is distinguished from values, and matches one value alone."""
    value = b"v" * 1_000
    text = json.dumps({"bytes": 1_000, "blake2b_256": blake2b(value, digest_size=32).hexdigest()}).encode()
    digest = parse("q", Fetched(value=text)).digest

    assert digest is not None
    assert digest.matches(value)
    assert not digest.matches(value + b"v")
    assert not digest.matches(None)
    for other in (
        b"{}",
        b"[1]",
        b"{no",
        None,
        b'{"bytes": true, "blake2b_256": "ab"}',
        text[:-1] + b', "more": 1}',
    ):
        assert parse("q", Fetched(value=other)).digest is None


@pytest.mark.parametrize(
    ("selection", "takes"),
    [
        (Selection(), True),
        (Selection(reason="TAKES"), True),
        (Selection(reason="other"), False),
        (Selection(group=b"g"), True),
        (Selection(group=b"h"), False),
        (Selection(older_s=9), True),
        (Selection(older_s=11), False),
        (Selection(newer_s=11), True),
        (Selection(newer_s=9), False),
        (Selection(at=[(1, 7)]), True),
        (Selection(at=[(7, 1)]), False),
        (Selection(consumer_group="c"), True),
        (Selection(consumer_group="d"), False),
        (Selection(reason="takes", group=b"h"), False),
    ],
)
def test_selection(selection: Selection, takes: bool) -> None:
    """A record must meet all given criteria."""
    refused = refused_record(reason="5 bytes, T takes 4", consumer_group="c")

    assert selection.matches(refused, b"g", 1_010_000) is takes


def test_what_is_typed() -> None:
    """A malformed duration or place is an error that shows a valid one."""
    assert [span(name) for name in ("90s", "10m", "2h", "1.5d")] == [90, 600, 7_200, 129_600]
    assert parse_place("0/17") == (0, 17)
    refusing: list[tuple[Callable[[str], Any], str]] = [
        (span, "10"),
        (span, "h"),
        (span, "-1h"),
        (parse_place, "17"),
        (parse_place, "0/x"),
    ]
    for read, text in refusing:
        with pytest.raises(ConfigurationError, match="write"):
            read(text)


def test_of_other_sources() -> None:
    """Records refused by bridges of other applications with the same name are not selected, but counted.

    A record without an application is selected.
    """
    wanted = Wanted(Selection(), lambda _: None, app_id="bremen")
    records = [
        Fetched((("_RF_BRIDGE_APP", app),) if app else ())
        for app in (b"bremen", b"kassel", b"", b"kassel", b"zwickau")
    ]

    assert [wanted.takes(parse("q", record), record, 0.0, is_open=True) for record in records] == [
        True, False, True, False, False,
    ]  # fmt: skip
    assert ": kassel: 2, zwickau: 1. " in wanted.passed.foreign_note
    assert wanted.passed.count == 0
    wanted.passed.clear()
    assert wanted.passed.foreign_note == ""
    anybodys = Wanted(Selection(), lambda _: None)
    assert all(anybodys.takes(parse("q", record), record, 0.0, is_open=True) for record in records)
