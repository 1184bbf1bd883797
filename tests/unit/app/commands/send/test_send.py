import json
from pathlib import Path
from typing import Any, cast

import pytest

from agents.batch.batch import DueRecords, FetchedBatch
from agents.decision import decide, envelope
from agents.decision.partitioner import Partitioner
from app.commands.send import json_lines, send
from app.commands.send.json_lines import InputError, Line, parse
from app.commands.send.send_record import Composer, Outgoing
from ringfence_kafka.config.load import validate
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.protocol.duplicate_id import composed as composed_id
from tables.table import LaneTable
from tests.unit.agents.decision.test_decide import Given, Table


def message(raw: bytes) -> Line:
    line = parse(raw)
    assert isinstance(line, Line)
    return line


def test_all_keys() -> None:
    """Every key of a line reaches the wire."""
    line = message(
        b'{"id": "a-1", "group": "g", "value": "v\\u00e9", "headers": {"trace": "x", "empty": null}}\n'
    )

    assert (line.id, line.group, line.payload) == ("a-1", "g", "vé".encode())
    assert line.headers == (("trace", "x"), ("empty", None))
    # A value that is not a string is sent as JSON without spaces, with keys in their order.
    for value, sent in (
        ('{"b": 1, "a": [true, null]}', '{"b":1,"a":[true,null]}'),
        ('["\\u00e9"]', '["é"]'),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
    ):
        assert message(f'{{"value": {value}}}'.encode()).payload == sent.encode()
    # A missing or null key leaves out ID, group or headers; an empty string counts, and null is a null value.
    for raw, absent in (
        (b'{"value": null}', None),
        (b'{"id": null, "group": null, "value": null, "headers": null}', None),
        (b'{"id": "", "group": "", "value": ""}', ""),
    ):
        line = message(raw)
        assert (line.id, line.group, line.headers) == (absent, absent, ())
        assert line.payload == (None if absent is None else absent.encode())
    repeated = parse(b'{"value": "", "headers": [["hop", "1"], ["via", null], ["hop", "2"]]}')
    assert repeated.headers == (("hop", "1"), ("via", None), ("hop", "2"))


def test_nothing_to_send(tmp_path: Path) -> None:
    """An unknown address and a missing file are errors with the way out, before a broker is asked."""
    settings = validate({"addresses": [{"name": "orders"}, {"name": "payments"}]})
    known = r"unknown address 'order': the configuration has orders, payments"

    with pytest.raises(ConfigurationError, match=known):
        send.send_lines(settings, "order", None)
    with pytest.raises(InputError, match=r"nowhere\.jsonl: No such file.*standard input"):
        send.send_lines(settings, "orders", str(tmp_path / "nowhere.jsonl"))


# -- transactions ---------------------------------------------------------------------------------------------------

PARTITIONS = 7
SETTINGS = validate(
    {
        "addresses": [
            {"name": "transfers", "transaction_addresses": ["payments", "notes"], "group_header": "region", "duplicate_id_headers": ["ID"]},
            {"name": "payments", "partitioner": "crc32"},
            {"name": "notes", "group_header": "region", "duplicate_id_from": "key"},
            {"name": "ledgers"},
        ]
    }
)  # fmt: skip


def composed(line: Any) -> Outgoing:
    address = SETTINGS.addresses[0]
    composer = Composer(address, SETTINGS.transaction_targets(address), PARTITIONS)
    return composer.compose(parse(json.dumps(line).encode(), address.duplicate_id_headers))


def test_transaction() -> None:
    """The group is the envelope's key, whatever groups its address has."""
    parts = [
        {"group": "acct-1", "value": {"debit": 10}, "headers": [["a", "1"], ["a", None]]},
        {"address": "payments", "group": "acct-2", "id": "p-1", "value": "credit", "headers": {"ID": "2"}},
        {"address": "notes", "group": "north", "value": None, "headers": {"region": "north"}},
        {"address": "transfers", "id": "t-2", "value": "", "headers": {"_AMQ_DUPL_ID": "4"}},
    ]
    record = composed({"id": "t-1", "group": "acct-1", "headers": {"trace": "x"}, "parts": parts})

    assert (record.key, record.partition, record.has_id) == (b"acct-1", -1, True)
    assert record.headers == [("trace", b"x"), ("_RF_TX", b"json/1"), ("ID", b"t-1")]
    assert envelope.decode(b"json/1", record.value) == [
        envelope.Part(None, b"acct-1", b'{"debit":10}', (("a", b"1"), ("a", None), ("region", b"acct-1"))),
        envelope.Part("payments", b"acct-2", b"credit", (("ID", b"2"), ("_AMQ_DUPL_ID", b"p-1"))),
        envelope.Part("notes", b"north", None, (("region", b"north"),)),
        envelope.Part("transfers", None, b"", (("_AMQ_DUPL_ID", b"4"), ("ID", b"t-2"))),
    ]


def test_transaction_without_a_group() -> None:
    """A transaction without a group goes to the home of its first ID."""
    for line, home in (
        ({"id": "t-1", "parts": [{"id": "t-2", "value": ""}]}, b"t-1"),
        ({"parts": [{"value": ""}, {"id": "t-2", "value": ""}, {"id": "t-3", "value": ""}]}, b"t-2"),
        ({"parts": [{"address": "payments", "id": "7", "value": ""}]}, b"7"),
        ({"parts": [{"address": "notes", "group": "8", "value": ""}]}, b"8"),
    ):
        record = composed(line)
        lane = decide.Path(
            SETTINGS.addresses[0], record.partition, PARTITIONS, "forward", SETTINGS.addresses[1:]
        )
        arrived = Given(0, record.key, list(record.headers), record.value)
        batch = FetchedBatch("transfers", record.partition, 0, 1, [arrived], 0)
        outcome = lane.decide([DueRecords(batch, [arrived])], cast("LaneTable", Table()), {})

        assert (record.key, record.partition, record.has_id) == (None, Partitioner(PARTITIONS)[home], True)
        assert (outcome.forwarded, outcome.quarantined, len(outcome.here)) == ([], [], 1)
        without = composed({"parts": [{"value": ""}]})
        assert (without.key, without.partition, without.has_id) == (None, -1, False)


def _composed_by(line: Any, **keys: Any) -> Outgoing:
    (address,) = validate({"addresses": [{"name": "orders", **keys}]}).addresses
    return Composer(address, (), PARTITIONS).compose(parse(json.dumps(line).encode(), address.id_headers))


def test_ids_of_several_parts() -> None:
    """A line without a group goes where its whole ID belongs, so that sent again it meets its original."""
    forms = ["header:a", "value:/id"]
    record = _composed_by({"headers": {"a": "1"}, "value": {"id": 7}}, duplicate_id_from=forms)
    lacking = _composed_by({"headers": {"a": "1"}, "value": {}}, duplicate_id_from=forms)

    assert record.has_id
    assert record.partition == Partitioner(PARTITIONS)[composed_id([b"1", b"7"])]
    assert (lacking.partition, lacking.has_id) == (-1, False)
    assert _composed_by({"id": "x", "value": ""}, duplicate_id_from="header:a").headers == [("a", b"x")]


def test_an_id_that_is_refused() -> None:
    """An ``id`` without effect is refused, which the sender would take for the duplicate ID."""
    for forms in (["header:a", "key"], "key", "value:/id"):
        with pytest.raises(ValueError, match=r"id = 'x' has no effect.*leave it out"):
            _composed_by({"id": "x", "group": "g", "value": {}}, duplicate_id_from=forms)
    for line in ({"value": 1}, {"parts": [{"value": 1}]}):
        with pytest.raises(ValueError, match=r"no duplicate ID: .*give it one"):
            _composed_by(line, duplicate_id_missing="quarantine")


def test_shown_keys_are_all() -> None:
    assert {model: set(known) for model, known in json_lines._KEYS.items()} == {
        model: set(model.model_fields) for model in json_lines._KEYS
    }


def test_faults() -> None:
    """A faulty line or transaction is refused at once, and not in quarantine; each problem is named with the remedy."""
    for line, fault, way_out in (
        (b"{", "not JSON", "one JSON object a line"),
        (b"[1]", "[1] is not an object", '{"id"'),
        (b'{"grp": "g"}', "unknown key 'grp'", "did you mean 'group'?"),
        (b'{"x": "g"}', "unknown key 'x'", "known keys are id, group, value, headers, or parts instead of value"),
        (b'{"id": 7, "value": "", "grop": "x"}', "id = 7 is not a string: put it in quotes", "; unknown key 'grop'"),
        (b'{"value": NaN}', "NaN", "write a number"),
        (b'{"headers": "x"}', "headers", "write an object of strings, or a list of [name, value] pairs"),
        (b'{"headers": {"a": 1}}', '["a", 1] is not a header', "strings"),
        (b'{"headers": [["_RF_SOURCE", "x"]]}', "'_RF_SOURCE' begins with _RF_", "rename it"),
        (b'{"value": {"list": [{"n": 1, "n": 2}]}}', 'the key "n" occurs twice', "remove one of them"),
        (b'{"value": "", "headers": {"hop": "a", "hop": "b"}}', 'the key "hop" occurs twice', "[name, value]"),
        (b'{"parts": [{"group": "a", "value": "", "group": "b"}]}', 'the key "group" occurs twice', "remove"),
        (b"{}", "value: missing", '"value": null to send a null value on purpose'),
        (b'{"id": "a", "valeu": "x"}', "value: missing", "did you mean 'value'?"),
        (b'{"id": "a", "value": "", "headers": {"_AMQ_DUPL_ID": "b"}}', "a duplicate ID beside id", "give one of them"),
        ({"parts": []}, "no parts", "at least one"),
        ({"parts": None}, "parts = null is not a list", 'write [{"group": …, "value": …}, …]'),
        ({"parts": [{"value": 1}], "value": 1}, "value beside parts", "give one of them"),
        ({"parts": [{"value": 1}], "x": 1}, "unknown key 'x'", "known keys are id, group, parts, headers"),
        ({"parts": [{"value": 1}, 7]}, "part 2/2: 7 is not an object", 'write {"address": …, "id": …'),
        ({"parts": [{"value": float("nan")}]}, "part 1/1: value: NaN", "write a number"),
        ({"parts": [{"value": 1, "parts": []}]}, "part 1/1: unknown key 'parts'", "known keys are address, id, group, value, headers"),
        ({"parts": [{"value": 1}, {"value": 1, "headers": {"_RF_KEY": ""}}]}, "part 2/2: headers: '_RF_KEY' begins with _RF_", "rename it"),
        ({"parts": [{"value": 1}, {"value": 1, "address": "ledgers"}]}, "part 2/2: address 'ledgers' is not in transaction_addresses of transfers", "add it there, or send such envelopes to an address that lists it"),
        ({"parts": [{"value": 1, "address": "payments", "id": "1", "headers": {"_AMQ_DUPL_ID": "2"}}]}, "part 1/1: headers: '_AMQ_DUPL_ID' is a duplicate ID beside id", "give one of them"),
        ({"parts": [{"value": 1, "group": "a", "headers": {"region": "b"}}]}, "part 1/1: headers: 'region' is a group beside group = 'a'", "give one of them"),
    ):  # fmt: skip
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is what matters
            parse(line) if isinstance(line, bytes) else composed(line)

        assert fault in str(caught.value)
        assert way_out in str(caught.value)
        assert not isinstance(caught.value.__cause__, KeyError)
        assert "\n" not in str(caught.value)
