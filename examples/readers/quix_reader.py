"""Read accepted messages with Quix Streams: ``python quix_reader.py``."""

import os

from quixstreams import Application

app = Application(
    broker_address=os.environ.get("KAFKA", "127.0.0.1:9092"),
    consumer_group="quix-reader",
    auto_offset_reset="earliest",
    auto_create_topics=False,
    consumer_extra_config={"isolation.level": "read_committed"},
)
orders = app.topic(
    os.environ.get("TOPIC", "orders.accepted"), value_deserializer="bytes", key_deserializer="bytes"
)
frame = app.dataframe(orders)
frame.apply(
    lambda value, _key, _timestamp, headers: print(
        dict(headers)["_RF_SOURCE"].decode(), value.decode(), flush=True
    ),
    metadata=True,
)
app.run()
