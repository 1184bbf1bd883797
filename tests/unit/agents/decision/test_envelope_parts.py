"""Transactions as a lane sees them: owners of parts, IDs and partitions."""

import pytest
from aiokafka.producer.message_accumulator import BatchBuilder

from agents.decision.envelope import MalformedEnvelopeError
from agents.decision.envelope_parts import Units
from ringfence_kafka.config.load import validate
from ringfence_kafka.protocol.stored_ids import digest_id, encode_id, foreign_id, of_address
from tests.unit.agents.decision.test_decide import Given
from tests.unit.agents.decision.test_decide_envelopes import AT_HOME, SETTINGS, Lane, emitted, envelope, part


def test_own_id_beside_those_of_parts() -> None:
    """The envelope's own ID comes first, whatever IDs the parts have."""
    unit = Units(SETTINGS.addresses[0], ()).open(
        envelope(0, part(ID="a"), part(), part(ID="b")), encode_id(b"own")
    )

    assert unit.ids == [encode_id(b"own"), encode_id(b"a"), encode_id(b"b")]


@pytest.mark.parametrize("own_id", [None, encode_id(b"own")])
@pytest.mark.parametrize(
    "addresses",
    [[None, None], [None, "transfers"], ["payments", None], ["notes", None], ["ledgers", None], ["", None]],
)
def test_bare_parts_are_read_as_all_others(
    addresses: list[str | None], own_id: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts that are read in fewer steps yield the same result, or the same error."""
    address = SETTINGS.addresses[0]
    units = Units(address, SETTINGS.transaction_targets(address))
    bare = [
        {"key": "k", "value": "v"} | ({} if address is None else {"address": address})
        for address in addresses
    ]

    def opened() -> object:
        try:
            unit = units.open(envelope(0, *bare), own_id)
        except MalformedEnvelopeError as error:
            return str(error)
        return [list(item) for item in unit]

    quick = opened()
    monkeypatch.setattr(units, "_plain", set())
    assert quick == opened()


def test_addresses_that_are_not_listed() -> None:
    """A part may not go to an existing address that is not listed, except the envelope's own."""
    address = SETTINGS.addresses[0]
    units = Units(address, SETTINGS.transaction_targets(address))

    assert units.open(envelope(0, part("transfers"), part("notes"), part()), None).addresses == [
        "transfers",
        "notes",
        "transfers",
    ]
    with pytest.raises(
        MalformedEnvelopeError,
        match="part 2/2: address 'ledgers' is not in transaction_addresses of transfers",
    ):
        units.open(envelope(0, part(), part("ledgers")), None)


def test_long_id_in_a_part() -> None:
    """A long ID in a part is kept as its digest, for its own address and for another.

    The digest leads back to the address.
    """
    long = "x" * 257
    own, foreign = (
        Units(SETTINGS.addresses[0], SETTINGS.addresses[1:3])
        .open(envelope(0, part(address, ID=long)), None)
        .ids[0]
        for address in (None, "payments")
    )

    assert own == digest_id(long.encode())
    assert foreign == foreign_id("payments", own)
    assert of_address(foreign) == ("payments", own)


def test_longest_name_of_an_address() -> None:
    """The length of the longest address name fits into its byte."""
    name = "a" * 200

    assert of_address(foreign_id(name, encode_id(b""))) == (name, encode_id(b""))


@pytest.mark.parametrize("value", [None, b"", b"{}"])
def test_forwarded_and_malformed(value: bytes | None) -> None:
    """A malformed envelope that was forwarded goes to quarantine as published, and its ID stays free."""
    lane = Lane()
    ours = [("_RF_SOURCE", b"transfers/3/8"), ("_RF_TIMESTAMP", (77).to_bytes(8, "big"))]
    record = Given(5, AT_HOME, [("_RF_TX", b"json/1"), ("_AMQ_DUPL_ID", b"x"), *ours], value)
    outcome = lane.decide(record, topic="ringfence-transfers-forward")
    (out,) = emitted(lane, outcome)

    assert (out.topic, out.value, out.headers["_RF_SOURCE"]) == (
        "transfers.quarantine",
        value,
        b"transfers/3/8",
    )
    assert outcome.checked.new_ids == []


def test_old_timestamps_of_parts() -> None:
    """A part too old for the topic of another address is marked as aged there, so that retention spares it."""
    lane = Lane()
    lane.emitter._outputs.aged_ms["payments.accepted"] = 1_000.0
    batch = lane.decide(envelope(0, part(), part("payments")))
    made = [
        (item.topic, item.aged)
        for item in lane.emitter.emit(batch, lambda: BatchBuilder(512 * 1024, 0, is_transactional=1))
    ]

    assert made == [("transfers.accepted", False), ("payments.accepted", True)]


def test_ids_of_an_address_with_other_rules() -> None:
    """An ID made from value or key comes from the part, and not from the envelope."""
    settings = validate(
        {
            "addresses": [
                {"name": "a", "transaction_addresses": ["b"], "duplicate_id_from": "value"},
                {"name": "b", "duplicate_id_from": "key"},
            ]
        }
    )
    units = Units(settings.addresses[0], settings.transaction_targets(settings.addresses[0]))
    opened = units.open(envelope(0, part(value="v"), part("b", "k"), part("b"), part(value=None)), None)

    assert opened.ids == [digest_id(b"v"), foreign_id("b", encode_id(b"k"))]
