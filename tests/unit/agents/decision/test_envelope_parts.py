"""Transactions as a lane sees them: owners of parts, IDs and partitions."""

from typing import Any

import pytest
from aiokafka.producer.message_accumulator import BatchBuilder

from agents.decision.envelope import MalformedEnvelopeError
from agents.decision.envelope_parts import Units
from ringfence_kafka.protocol.stored_ids import encode_id
from tests.unit.agents.decision.test_decide_envelopes import SETTINGS, Lane, envelope, part


@pytest.mark.parametrize("own_id", [None, encode_id(b"own")])
@pytest.mark.parametrize(
    "addresses",
    [[None, None], [None, "transfers"], ["payments", None], ["notes", None], ["ledgers", None], ["", None]],
)
def test_bare_parts_are_read_as_others(addresses: Any, own_id: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that are read in fewer steps yield the same result, or the same error."""
    address = SETTINGS.addresses[0]
    units = Units(address, SETTINGS.transaction_targets(address))
    bare = [{"key": "k", "value": "v"} | ({} if name is None else {"address": name}) for name in addresses]

    def opened() -> object:
        try:
            unit = units.open(envelope(0, *bare), own_id)
        except MalformedEnvelopeError as error:
            return str(error)
        return [list(item) for item in unit]

    quick = opened()
    monkeypatch.setattr(units, "_plain", set())
    assert quick == opened()


def test_old_timestamps_of_parts() -> None:
    """A part too old for the topic of another address is marked as aged there, so that retention spares it."""
    lane = Lane()
    lane.emitter._outputs.aged_ms["payments.accepted"] = 1_000.0
    batch = lane.decide(envelope(0, part(), part("payments")))
    batches = lane.emitter.emit(batch, lambda: BatchBuilder(512 * 1024, 0, is_transactional=1))
    made = [(item.topic, item.aged) for item in batches]

    assert made == [("transfers.accepted", False), ("payments.accepted", True)]
