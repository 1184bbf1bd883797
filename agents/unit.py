"""Transactions as a lane sees them: an envelope's parts, each with its address, group and IDs. Pure.

The parts of a transaction go to whatever groups and addresses they name; all are accepted, or none, in one lane at one moment. See
:mod:`agents.envelope` for how they are written.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from agents import envelope, usual_envelope
from agents.batch import Record
from agents.envelope import MalformedEnvelopeError
from agents.verdict import Reader, last_header
from ringfence_kafka import wire
from ringfence_kafka.config.settings import AddressSettings
from tables.codec import foreign_id, of_address

PARTS_MAX: Final = 20_000
"""Of all envelopes that go into one Kafka transaction."""


class Part(NamedTuple):
    """One message of a transaction, as it will be accepted."""

    address: str
    group: bytes | None
    written: usual_envelope.Part
    """As its producer wrote it."""


class Unit(NamedTuple):
    """What is accepted or ignored whole."""

    parts: list[Part]
    ids: list[bytes]
    """All encoded IDs, the envelope's own first; one is enough. Those of other addresses say whose they are."""

    @property
    def lead(self) -> bytes | None:
        """The encoded ID by which an envelope without key finds its home: where a producer that keys by the ID sends it.

        Whichever address it is one of, it is as that one stores it. None = no ID.
        """
        return of_address(self.ids[0])[1] if self.ids else None


class Units:
    """Opens the envelopes of one address."""

    def __init__(self, address: AddressSettings, others: Iterable[AddressSettings]) -> None:
        """``others``: the addresses that its envelopes may have parts for, beside its own."""
        self._own = address.name
        self._readers = {each.name: Reader(each) for each in (address, *others)}

    def open(self, record: Record, own_id: bytes | None) -> Unit:
        """The parts of an envelope.

        Args:
            record: An envelope.
            own_id: The encoded ID that it has as any message of its address has one.

        Raises:
            MalformedEnvelopeError: it cannot be read, or a part goes where it may not; the text names the part as ``i/N``.
        """
        written = envelope.decode(last_header(record.headers, wire.HEADER_TRANSACTION) or b"", record.value)
        own = self._own
        addresses = [own if each.address is None else each.address for each in written]
        ids: list[bytes | None] = [None] * len(written)
        groups: list[bytes | None] = [None] * len(written)
        distinct = dict.fromkeys(addresses)
        for address in distinct:
            reader = self._readers.get(address)
            if reader is None:
                raise MalformedEnvelopeError(
                    f"part {addresses.index(address) + 1}/{len(written)}: address {envelope.shown(address)} is not in "
                    f"transaction_addresses of {own}: add it there, or send such envelopes to an address that lists it"
                )
            places: Sequence[int] = range(len(written))
            those = written
            if len(distinct) > 1:
                places = [number for number in places if addresses[number] == address]
                those = [written[number] for number in places]
            found, _ = reader.ids(those)
            for number, each, group in zip(places, found, reader.groups(those), strict=True):
                ids[number] = each if each is None or address == own else foreign_id(address, each)
                groups[number] = group
        return Unit(
            list(map(Part, addresses, groups, written)),
            [each for each in (own_id, *ids) if each is not None],
        )
