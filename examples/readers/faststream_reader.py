"""Read accepted messages with FastStream: ``faststream run faststream_reader:app``."""

import os

from faststream import FastStream
from faststream.confluent import KafkaBroker, KafkaMessage

broker = KafkaBroker(os.environ.get("KAFKA", "127.0.0.1:9092"))
app = FastStream(broker)


@broker.subscriber(
    os.environ.get("TOPIC", "orders.accepted"),
    group_id="faststream-reader",
    auto_offset_reset="earliest",
    isolation_level="read_committed",
    decoder=lambda message: message.body,
)
async def read(value: bytes, message: KafkaMessage) -> None:
    """Print each message with the place where it was published."""
    print(message.headers["_RF_SOURCE"], value.decode(), flush=True)
