from typing import Any

import pytest

from ringfence_kafka.protocol.duplicate_id import DuplicateIds, Headers, checked_forms

STRUCTURED: Headers = [("content-type", b"application/cloudevents+json; charset=UTF-8")]
EVENT = b'{"specversion":"1.0","source":"/shop","id":"42","data":{"id":"other"}}'


def _read(
    forms: Any, headers: Headers = (), key: bytes | None = None, value: bytes | None = None
) -> bytes | None:
    return DuplicateIds(checked_forms(forms), ("_AMQ_DUPL_ID",)).id_of(headers, key, value)


def test_a_list_of_one_is_its_form() -> None:
    assert checked_forms(["header:id"]) == checked_forms("header:id") == "header:id"
    assert checked_forms(["key", "value"]) == ("key", "value")


def test_parts_are_apart() -> None:
    """Parts have their lengths before them, so that no other division gives the same ID; their order counts."""
    forms = ["header:a", "header:b"]
    divided = [(b"a|", b"b"), (b"a", b"|b"), (b"b", b"a|"), (b"a\x00\x00\x00\x01b", b"c"), (b"a", b"b")]

    assert _read(forms, [("b", b"bc"), ("a", b"a")]) == b"\x00\x00\x00\x01a\x00\x00\x00\x02bc"
    assert len({_read(forms, [("a", one), ("b", other)]) for one, other in divided}) == len(divided)


@pytest.mark.parametrize("missing", [[], [("b", None)], [("b", b"")]])
def test_a_missing_part_is_a_missing_id(missing: Headers) -> None:
    """A part that is missing, null or empty gives no ID: the others alone are not unique."""
    ids = DuplicateIds(("header:a", "header:b"), ())

    assert ids.id_of([("a", b"1"), *missing], None, None) is None
    assert ids.fault([("a", b"1"), *missing], None, None) == (
        'no duplicate ID: the header b is missing or empty (duplicate_id_missing = "quarantine")'
    )
    assert ids.fault([("a", b"1"), ("b", b"2")], None, None) == ""


@pytest.mark.parametrize(
    ("pointer", "value", "expected"),
    [
        ("/id", b'{"id":"a"}', b"a"),
        ("/id", '{"id":"größe \\u00e9 \\ud83d\\ude00 \\""}'.encode(), 'größe é 😀 "'.encode()),
        ("/id", b'{"id":12345678901234567890123}', b"12345678901234567890123"),
        ("/id", b'{"id": 1.10}', b"1.10"),
        ("/id", b'{"id":"a","id":"b"}', b"b"),
        ("/a/b/c", b'{"a":{"b":{"c":7}}}', b"7"),
        ("/a/b/c", b'{"a":"{\\"b\\":{\\"c\\":7}}"}', None),
        ("/lines/1/id", b'{"lines":[{"id":"a"},{"id":"b"}]}', b"b"),
        ("/lines/01/id", b'{"lines":[{"id":"a"},{"id":"b"}]}', None),
        ("/lines/-/id", b'{"lines":[{"id":"a"}]}', None),
        ("/0", b'["a"]', b"a"),
        ("/a~1b/~01", b'{"a/b":{"~1":"x"}}', b"x"),
        ("/", b'{"":"x"}', b"x"),
        *(("/id", value, None) for value in (
            None, b'{"id":null}', b'{"id":""}', b'{"id":{"id":"a"}}', b'{"id":"a"} x', b'{"id":"a","b":NaN}', b'{"id":"a","b":"\xff"}',
            b'{"id":"\\ud800"}', b'["id"]', b"[" * 100_000,
        )),
    ],
)  # fmt: skip
def test_json_pointers(pointer: str, value: bytes | None, expected: bytes | None) -> None:
    """Strings are their UTF-8 bytes, numbers and booleans their JSON text; everything else is missing."""
    assert _read(f"value:{pointer}", value=value) == expected


def test_values_and_keys_are_parts() -> None:
    """The digest of the value is a part, however long the value is."""
    found = _read(["key", "value"], key=b"k", value=b"v" * 10_000)

    assert found is not None
    assert found[:9] == b"\x00\x00\x00\x01k\x00\x00\x00\x20"
    assert len(found) == 41
    assert _read(["key", "value"], key=b"k", value=b"") is None
    assert _read(["key", "value"], key=None, value=b"v") is None


def test_cloudevents_in_both_modes() -> None:
    """An event has one ID, in binary mode by headers and in structured mode by the attributes in its value."""
    forms = ["header:ce_source", "header:ce_id"]
    binary = _read(forms, [("ce_source", b"/shop"), ("ce_id", b"42")], value=b"{}")

    assert binary is not None
    assert _read(forms, STRUCTURED, value=EVENT) == binary
    assert _read(forms, [("content-type", b"Application/CloudEvents+JSON")], value=EVENT) == binary
    assert _read(forms, [*STRUCTURED, ("ce_id", b"43")], value=EVENT) not in {None, binary}
    assert _read("header:ce_id", STRUCTURED, value=EVENT) == b"42"


@pytest.mark.parametrize("kind", [b"application/json", b"application/cloudevents-batch+json", None])
def test_other_values_are_no_events(kind: bytes | None) -> None:
    """A member of a value is an attribute only in a CloudEvent, and only for names that begin with ``ce_``."""
    assert _read("header:ce_id", [("content-type", kind)], value=EVENT) is None
    assert _read("header:ce_id", value=EVENT) is None
    assert _read("header:id", STRUCTURED, value=EVENT) is None


@pytest.mark.parametrize(
    ("forms", "expected"),
    [
        ("header", "the header _AMQ_DUPL_ID is missing or empty"),
        ("value", "its value is null or empty"),
        ("value:/a/b", "its value has no string, number or boolean at /a/b"),
        (["header:x", "key"], "its key is null or empty"),
    ],
)
def test_what_is_missing_is_named(forms: Any, expected: str) -> None:
    ids = DuplicateIds(checked_forms(forms), ("_AMQ_DUPL_ID",))

    assert ids.fault([("x", b"1")], None, None) == (
        f'no duplicate ID: {expected} (duplicate_id_missing = "quarantine")'
    )


def test_a_value_that_is_not_json_is_named() -> None:
    ids = DuplicateIds("value:/id", ())

    for value in (b"{", b'{"id":"1"} more', b'\xef\xbb\xbf{"id":"1"}', b'{"id":"1","x":NaN}'):
        assert "its value is not JSON in UTF-8" in ids.fault([], None, value)
    assert "no string, number or boolean at /id" in ids.fault([], None, b'{"id":null}')
