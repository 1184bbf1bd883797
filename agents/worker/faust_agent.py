"""Faust agent of an address: passes batches to its lanes.

Faust may cancel an actor at any await and acknowledges after an exception. An actor therefore holds no state and raises no exception.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import faust
from faust.types import EventT, Message

from agents.batch.batch import Parcel
from agents.worker.lanes import Lanes
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.protocol import wire_names


class BatchSchema(faust.Schema):  # type: ignore[misc]
    """Schema for messages whose value is a batch, which needs no decoding."""

    def compile(self, app: faust.App, **_: Any) -> Callable[..., Awaitable[EventT]]:
        """Return the function with which Faust creates an event from a message."""
        create_event = app.create_event

        async def decode(message: Message, *, propagate: bool = False) -> EventT:
            return create_event(None, message.value, message.headers, message)

        return decode


def register(app: faust.App, app_id: str, address: AddressSettings, lanes: Lanes) -> None:
    """Create the agent: one actor for each partition of the input and forward topic.

    A lane's batches of all partitions go to the actor of its first partition. Faust commits no offsets; the lane's transaction does. All
    partitions of a lane go to one worker: see ``app/worker/membership/assignor.py``.
    """
    forward = (wire_names.forward_topic(app_id, address.name),) if address.forwards else ()
    topics = (address.input_topic, *forward)
    topic = app.topic(*topics, acks=False, internal=False, schema=BatchSchema())

    async def address_agent(stream: faust.StreamT[Parcel]) -> None:
        async for parcel in stream:
            await _deliver(parcel, lanes)

    app.agent(topic, name=f"address-{address.name}", isolated_partitions=True)(address_agent)


async def _deliver(parcel: Parcel, lanes: Lanes) -> None:
    """Offer the batches and keep no reference, so that a waiting actor does not hold the memory of earlier ones."""
    for batch in parcel.release():
        await lanes.offer(batch)
