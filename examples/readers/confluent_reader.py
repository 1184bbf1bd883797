"""Read accepted messages with confluent-kafka: ``python confluent_reader.py``."""

import os
import sys

from confluent_kafka import Consumer

consumer = Consumer(
    {
        "bootstrap.servers": os.environ.get("KAFKA", "127.0.0.1:9092"),
        "group.id": "confluent-reader",
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
    }
)
consumer.subscribe([os.environ.get("TOPIC", "orders.accepted")])
while True:
    message = consumer.poll(1.0)
    if message is None:
        continue
    if message.error():
        sys.exit(str(message.error()))
    source = dict(message.headers() or [])["_RF_SOURCE"]
    print(source.decode(), message.value().decode(), flush=True)
