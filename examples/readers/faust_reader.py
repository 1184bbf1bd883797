"""Read accepted messages with a Faust application: ``faust -A faust_reader worker``."""

import os

import faust

app = faust.App(
    "faust-reader",
    broker=f"kafka://{os.environ.get('KAFKA', '127.0.0.1:9092')}",
    # Faust sets read_committed only for exactly-once. Without this line it also returns messages of aborted transactions.
    processing_guarantee="exactly_once",
    topic_allow_declare=False,
    topic_disable_leader=True,
    web_enabled=False,
)
orders = app.topic(os.environ.get("TOPIC", "orders.accepted"), value_type=bytes, value_serializer="raw")


@app.agent(orders)
async def read(stream):
    """Print each message with the place where it was published."""
    async for event in stream.events():
        print(f"{event.headers['_RF_SOURCE'].decode()} {event.value.decode()}", flush=True)
