"""Sends one transaction with confluent-kafka. ``envelope`` needs no Kafka client, and refuses the same parts as workers."""

from confluent_kafka import KafkaError, Message, Producer

from ringfence_client import Part, envelope


def answered(error: KafkaError | None, _message: Message) -> None:
    """Stop with an error if the record is not acknowledged. Then send the same record again."""
    if error:
        raise SystemExit(str(error))


debit = Part('{"debit":"10 €"}', key="acct-1")
credit = Part(b"\x00\x01\xff", key="acct-2", address="payments", headers=[("type", "credit")])
value, headers = envelope([debit, credit], "pay-4711")

producer = Producer({"bootstrap.servers": "127.0.0.1:9092", "partitioner": "murmur2_random", "acks": "all"})
producer.produce("transfers", value, "acct-1", headers=headers, on_delivery=answered)
producer.flush()
