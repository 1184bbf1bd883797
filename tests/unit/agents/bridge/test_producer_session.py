"""Errors that end a producer session, and their meaning for the record in flight."""

import asyncio
from typing import cast

import pytest
from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError, TopicAuthorizationFailedError

from agents.bridge.batch_builder import Batch
from agents.bridge.producer_session import ProducerSession, SessionEndedError
from agents.bridge.window import Cycle, Place
from ringfence_kafka.producer.idempotent import IdempotentProducer
from tests.support.bridges.simulated import Producer


@pytest.mark.parametrize(
    ("error", "quarantine", "of_this_record"),
    [
        (MessageSizeTooLargeError("no"), False, True),
        (MessageSizeTooLargeError("no"), True, True),
        (TopicAuthorizationFailedError("t"), False, False),
        (TopicAuthorizationFailedError("q"), True, True),
        (KafkaTimeoutError("away"), True, False),
    ],
)
async def test_what_a_refusal_is_about(error: Exception, quarantine: bool, of_this_record: bool) -> None:
    """Without the right to write to the target nothing is forwarded; without that for the quarantine topic only that is lacking."""
    place = Place(0, "A" * 22, 0, 0)
    batch = Batch("q" if quarantine else "t", 0, None, Cycle({place: 1}), (place, 0), quarantine=quarantine)
    producer = Producer()
    life = ProducerSession("b", cast("IdempotentProducer", producer))
    life.hand_over([batch])
    await asyncio.sleep(0)
    (sent,) = producer.outstanding
    sent.answer.set_exception(error)
    await life.moved.wait()

    with pytest.raises(SessionEndedError) as caught:
        life.check()
    assert (caught.value.refused is batch) == of_this_record
    await life.discard()
