"""Reading a line of ``ringfence send``."""

import json
from pathlib import Path

import pytest

from app.verbs import send
from app.verbs.lines import InputError, parse
from ringfence_kafka.config.load import validate
from ringfence_kafka.errors import ConfigurationError


def test_all_parts() -> None:
    """Every part of a line, as it goes on the wire."""
    line = parse(
        b'{"id": "a-1", "group": "g", "value": "v\\u00e9", "headers": {"trace": "x", "empty": null}}\n'
    )

    assert (line.id, line.group, line.payload) == ("a-1", "g", "vé".encode())
    assert line.headers == (("trace", "x"), ("empty", None))


def test_what_is_missing_or_null_is_absent() -> None:
    """No ID, no group, no headers; an empty string is something, and null is a null value."""
    for raw in (b'{"value": null}', b'{"id": null, "group": null, "value": null, "headers": null}'):
        line = parse(raw)
        assert (line.id, line.group, line.payload, line.headers) == (None, None, None, ())
    line = parse(b'{"id": "", "group": "", "value": ""}')

    assert (line.id, line.group, line.payload) == ("", "", b"")


@pytest.mark.parametrize(
    ("value", "payload"),
    [
        ('{"b": 1, "a": [true, null]}', b'{"b":1,"a":[true,null]}'),
        ("7", b"7"),
        ("false", b"false"),
        ('["\\u00e9"]', '["é"]'.encode()),
        ("123456789012345678901234567890", b"123456789012345678901234567890"),
    ],
)
def test_other_values_are_compact_json(value: str, payload: bytes) -> None:
    """What is no string is sent as JSON without spaces, keys in their order."""
    assert parse(f'{{"value": {value}}}'.encode()).payload == payload


def test_repeated_headers() -> None:
    """A list of pairs keeps order and repetition."""
    line = parse(b'{"value": "", "headers": [["hop", "1"], ["via", null], ["hop", "2"]]}')

    assert line.headers == (("hop", "1"), ("via", None), ("hop", "2"))


@pytest.mark.parametrize(
    ("raw", "fault", "way_out"),
    [
        (b"{", "not JSON", "one JSON object a line"),
        (b"\xff\xfe", "not JSON", "UTF-8"),
        (b"[1]", "[1] is no object", '{"id"'),
        (b'{"grp": "g"}', "unknown key 'grp'", "did you mean 'group'?"),
        (b'{"x": "g"}', "unknown key 'x'", "known keys are id, group, value, headers"),
        (b'{"id": 7}', "id = 7 is no string", "quotes"),
        (b'{"group": {}}', "group = {} is no string", "quotes"),
        (b'{"value": NaN}', "NaN", "write a number"),
        (b'{"headers": "x"}', "headers", "write an object of strings, or a list of [name, value] pairs"),
        (b'{"headers": {"a": 1}}', '["a", 1] is no header', "strings"),
        (b'{"headers": [["a"]]}', '["a"] is no header', "strings"),
        (b'{"headers": [["_RF_SOURCE", "x"]]}', "'_RF_SOURCE' begins with _RF_", "rename it"),
        (b"{}", "value: missing", '"value": null to send a null value on purpose'),
        (b'{"id": "a", "valeu": "x"}', "value: missing", "did you mean 'value'?"),
        (
            b'{"id": "a", "value": "", "headers": {"_AMQ_DUPL_ID": "b"}}',
            "a duplicate ID beside id",
            "give one of them",
        ),
    ],
)
def test_faulty_lines(raw: bytes, fault: str, way_out: str) -> None:
    """Each fault is named, and what to do about it."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is what matters
        parse(raw)

    assert fault in str(caught.value)
    assert way_out in str(caught.value)
    assert not isinstance(caught.value.__cause__, KeyError)
    assert "\n" not in str(caught.value)


def test_two_faults_in_one_line() -> None:
    """Both are named, so that one correction suffices."""
    with pytest.raises(ValueError, match=r"id = 7 .*; unknown key 'grop'"):
        parse(json.dumps({"id": 7, "value": "", "grop": "x"}).encode())


def test_unknown_address() -> None:
    """The known ones are listed."""
    settings = validate({"addresses": [{"name": "orders"}, {"name": "payments"}]})

    with pytest.raises(
        ConfigurationError, match=r"unknown address 'order': the configuration has orders, payments"
    ):
        send.run(settings, "order", None)


def test_file_that_is_not_there(tmp_path: Path) -> None:
    """Named with the way out, before anything is asked of a broker."""
    settings = validate({"addresses": [{"name": "orders"}]})

    with pytest.raises(InputError, match=r"nowhere\.jsonl: No such file.*standard input"):
        send.run(settings, "orders", str(tmp_path / "nowhere.jsonl"))
