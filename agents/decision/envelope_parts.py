"""Parts of an envelope with their addresses, groups and IDs. Pure.

Each part goes to its own group and address. One lane accepts all parts at once, or none.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from agents.batch.record import RecordContent
from agents.decision import envelope
from agents.decision.envelope import MalformedEnvelopeError, Part
from agents.decision.fast_envelope import Headers
from agents.decision.ids_and_groups import IdReader, last_header
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.stored_ids import foreign_id, of_address

BATCH_PARTS_MAX: Final = 20_000
"""Maximum number of parts of all envelopes in one Kafka transaction."""


class Unit(NamedTuple):
    """Parts that are accepted or ignored together. The fields are parallel sequences in the order of the parts."""

    addresses: Sequence[str]
    groups: Sequence[bytes | None]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]
    """Headers of each part, as the producer wrote them."""
    ids: Sequence[bytes]
    """All encoded IDs, the envelope's own first. One known ID makes the envelope a duplicate. An ID of another address names that address."""
    part_ids: Sequence[bytes | None] = ()
    """Encoded ID of each part; empty if no part has one."""

    @property
    def lead(self) -> bytes | None:
        """Encoded ID that decides the home of an envelope without a key; None if there is no ID.

        The ID has the form in which its own address stores it.
        """
        return of_address(self.ids[0])[1] if self.ids else None


class Units:
    """Opens the envelopes of one address."""

    def __init__(self, address: AddressSettings, others: Iterable[AddressSettings]) -> None:
        """Create the decoder. ``others``: other addresses that its envelopes may have parts for."""
        self._own = address.name
        self._readers = {
            address_settings.name: IdReader(address_settings) for address_settings in (address, *others)
        }
        self._plain = {
            address_settings.name
            for address_settings in (address, *others)
            if address_settings.duplicate_id_from == "header" and not address_settings.group_header
        }
        """Addresses for which a part with only key and value has no ID, and its key as group."""

    def open(self, record: RecordContent, own_id: bytes | None) -> Unit:
        """Return the parts of an envelope. ``own_id``: encoded ID of the envelope itself.

        Raises:
            MalformedEnvelopeError: it is invalid, or a part goes to an address that is not allowed; the text names the part as ``i/N``.
        """
        own = self._own
        form = last_header(record.headers, wire_names.HEADER_TRANSACTION) or b""
        if own in self._plain and (bare := envelope.decode_bare(form, record.value)) is not None:
            keys, values, named = bare
            addresses = [own if item is None else item for item in named] if named else [own] * len(keys)
            if not named or self._plain.issuperset(addresses):
                lead = () if own_id is None else (own_id,)
                return Unit(addresses, keys, keys, values, [()] * len(keys), lead)
        parts = envelope.decode(form, record.value)
        addresses = [own if part.address is None else part.address for part in parts]
        if addresses.count(own) == len(addresses):  # the usual case: read all parts at once
            ids, groups = self._readers[own].ids(parts)[0], self._readers[own].groups(parts)
        else:
            ids, groups = self._of_several(parts, addresses)
        return Unit(
            addresses,
            groups,
            [part.key for part in parts],
            [part.value for part in parts],
            [part.headers for part in parts],
            [item for item in (own_id, *ids) if item is not None],
            () if ids.count(None) == len(ids) else ids,
        )

    def _of_several(
        self, parts: Sequence[Part], addresses: Sequence[str]
    ) -> tuple[list[bytes | None], list[bytes | None]]:
        """Return ID and group of each part, each by the rules of its address."""
        ids: list[bytes | None] = [None] * len(parts)
        groups: list[bytes | None] = [None] * len(parts)
        for address in dict.fromkeys(addresses):
            reader = self._readers.get(address)
            if reader is None:
                raise MalformedEnvelopeError(
                    f"part {addresses.index(address) + 1}/{len(parts)}: address {envelope.shown(address)} is not in "
                    f"transaction_addresses of {self._own}: add it there, or send such envelopes to an address that lists it"
                )
            places = [number for number, name in enumerate(addresses) if name == address]
            those = [parts[number] for number in places]
            for number, id_, group in zip(places, reader.ids(those)[0], reader.groups(those), strict=True):
                ids[number] = id_ if id_ is None or address == self._own else foreign_id(address, id_)
                groups[number] = group
        return ids, groups
