"""The Faust agent of an address: passes batches to its lanes.

Faust may cancel an actor at any await and acknowledges after an exception, so an actor holds no state and lets no exception out.
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
    """The value of a message is a batch already: there is nothing to decode."""

    def compile(self, app: faust.App, **_: Any) -> Callable[..., Awaitable[EventT]]:
        """Return the function by which Faust makes an event of a message."""
        create_event = app.create_event

        async def decode(message: Message, *, propagate: bool = False) -> EventT:
            return create_event(None, message.value, message.headers, message)

        return decode


def register(app: faust.App, app_id: str, address: AddressSettings, lanes: Lanes) -> None:
    """Make the agent: one actor a partition of input and forward topic. The actor of a lane's first partition gets what all of them have.

    Faust commits nothing for it; the lane's transaction does. All partitions of a lane go to one worker: see
    ``app/worker/membership/assignor.py``.
    """
    forward = (wire_names.forward_topic(app_id, address.name),) if address.forwards else ()
    topics = (address.input_topic, *forward)
    topic = app.topic(*topics, acks=False, internal=False, schema=BatchSchema())

    async def address_agent(stream: faust.StreamT[Parcel]) -> None:
        async for parcel in stream:
            await _deliver(parcel, lanes)

    app.agent(topic, name=f"address-{address.name}", isolated_partitions=True)(address_agent)


async def _deliver(parcel: Parcel, lanes: Lanes) -> None:
    """Offer the batches, and keep none: an actor that waits for its next ones must not have the last ones."""
    for batch in parcel.take():
        await lanes.offer(batch)
