"""Publishes the lines of ``ringfence send``, with each group in order, whatever the broker refuses.

A broker accepts record batches after a refused one. Therefore this producer has only one request in flight,
and the first refusal ends it (librdkafka's ``enable.gapless.guarantee``). That option does not cover
librdkafka's time limit for messages, so the limit here replaces it.
"""

import functools
import math
import time
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from app.commands.send.send_record import Outgoing
from ringfence_kafka.admin.topics import TopicDescription
from ringfence_kafka.auth.tls import confluent_options
from ringfence_kafka.config.settings import KafkaSettings

DELIVERY_LIMIT_S: Final = 20.0
"""Time for a lost broker to return before a message counts as refused, in seconds."""
RECORD_BYTES_MAX: Final = 1_000_000_000
"""Size limit of a record, above librdkafka's default, which many brokers exceed: the broker decides."""
LINES_MAX: Final = 1_000
"""Maximum number of unacknowledged lines, which an error message may list."""
BATCH_BYTES_MAX: Final = 1_000_000
BATCH_BYTES_UNKNOWN: Final = 16_384
"""Batch size if this user may not see the topic's limit: the default of Kafka's own producer."""
_LEAST_LIMIT: Final = 1_000
"""Lowest limit of a record that librdkafka takes, in bytes."""
_STEP_S: Final = 0.2

AWAY: Final = frozenset(
    getattr(KafkaError, name)
    for name in ("_MSG_TIMED_OUT", "_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE")
)
"""Errors that mean that no broker answers."""
_DISCARDED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})
_PARTITIONERS: Final = {"murmur2": "murmur2_random", "crc32": "consistent_random"}
"""Configured partitioner → librdkafka's name."""


def producer_options(kafka: KafkaSettings, partitioner: str) -> dict[str, Any]:
    """Return the options of an idempotent producer with the address's partitioner."""
    return confluent_options(kafka) | {
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": _PARTITIONERS[partitioner],
        "message.timeout.ms": int(DELIVERY_LIMIT_S * 1000),
        "message.max.bytes": RECORD_BYTES_MAX,
    }


class _Pending(NamedTuple):
    """Line that waits for its acknowledgement."""

    since: float
    """Time of the monotonic clock, in seconds."""
    has_id: bool


class Sender:
    """Publishes records, and tracks the fate of each line."""

    def __init__(self, kafka: KafkaSettings, partitioner: str, topic: TopicDescription) -> None:
        """Create the producer. If the settings of the topic are unknown, the broker decides about large lines."""
        self.sent = 0
        """Number of acknowledged messages."""
        self.sent_without_id = 0
        self.refused: tuple[int, KafkaError] | None = None
        """First refused line, and its error."""
        self.last = 0
        """Last line given to the producer."""
        self.unwritten: list[int] = []
        """Lines that are not in the topic."""
        self.doubtful: list[int] = []
        """Lines that may be in the topic, because the connection broke before their acknowledgement."""
        self.doubtful_without_id = 0
        self._topic = topic.name
        self._pending: dict[int, _Pending] = {}
        """Line number → pending line, in order."""
        self._ended: KafkaError | None = None
        """Error after which the producer sends nothing more."""
        self._disturbed_at = -math.inf
        """Time of the last broken connection. Lines that waited then may be written."""
        bytes_max = None if topic.config is None else topic.message_bytes_max
        options = producer_options(kafka, partitioner) | {
            "max.in.flight.requests.per.connection": 1,
            "enable.gapless.guarantee": True,
            "message.timeout.ms": 0,
            "queue.buffering.max.messages": LINES_MAX,
            "linger.ms": 0,
            "batch.size": min(BATCH_BYTES_MAX, bytes_max or BATCH_BYTES_UNKNOWN),
            "error_cb": self._note,
        }
        if bytes_max is not None and options.get("compression.type", "none") == "none":
            # A broker that knows nothing of this producer may accept the batch behind a refused one.
            options["message.max.bytes"] = min(RECORD_BYTES_MAX, max(_LEAST_LIMIT, bytes_max))
        self._producer = Producer(options)

    def send(self, number: int, record: Outgoing) -> None:
        """Pass a line's record to the producer, waiting while its queue is full. No-op after a refusal."""
        key, value, headers, partition, has_id = record
        given: list[tuple[str, str | bytes | None]] = list(headers)
        acknowledged = functools.partial(self._acknowledged, number)
        while self._goes_on():
            try:
                self._producer.produce(
                    self._topic, value, key, partition, headers=given, on_delivery=acknowledged
                )
            except BufferError:
                self._poll(_STEP_S)
            except KafkaException as error:
                if not error.args[0].fatal():  # a fatal error means that an earlier line was refused
                    self._await_all()
                    if not self._goes_on():
                        return
                    self.refused, self.last = (number, error.args[0]), number
                    self.unwritten.append(number)
                self._ended = error.args[0]
            else:
                self.last = number
                self._pending[number] = _Pending(time.monotonic(), has_id)
                self._poll(0)
                return

    def finish(self) -> None:
        """Wait for all acknowledgements. After a refusal, discard unsent lines."""
        self._await_all()
        if self._goes_on():
            return
        away = self.refused is not None and self.refused[1].code() in AWAY
        deadline = time.monotonic() + DELIVERY_LIMIT_S
        while self._pending:
            away = away or time.monotonic() > deadline
            self._producer.purge(in_queue=True, in_flight=away)
            self._poll(_STEP_S)
        if self.refused is None and self._ended is not None:
            first = min(self.unwritten + self.doubtful, default=self.last + 1)
            self.refused = first, self._ended

    def _await_all(self) -> None:
        while self._pending and self._goes_on():
            self._poll(_STEP_S)

    def _goes_on(self) -> bool:
        if self.refused is None and self._ended is None and self._pending:
            number, oldest = next(iter(self._pending.items()))
            if time.monotonic() - oldest.since > DELIVERY_LIMIT_S:
                self._disturbed_at = time.monotonic()
                self.refused = number, KafkaError(KafkaError._MSG_TIMED_OUT)
        return self.refused is None and self._ended is None

    def _poll(self, limit_s: float) -> None:
        try:
            self._producer.poll(limit_s)
        except KafkaException as error:  # the producer has ended, but acknowledgements still arrive
            self._ended = error.args[0]

    def _note(self, error: KafkaError) -> None:
        if error.fatal():
            self._ended = error
        elif error.code() in AWAY:
            self._disturbed_at = time.monotonic()

    def _acknowledged(self, number: int, error: KafkaError | None, _message: Message) -> None:
        pending = self._pending.pop(number)
        if error is None:
            self.sent += 1
            self.sent_without_id += not pending.has_id
        elif error.code() in _DISCARDED:
            inflight = error.code() == KafkaError._PURGE_INFLIGHT
            doubtful = inflight or pending.since <= self._disturbed_at
            (self.doubtful if doubtful else self.unwritten).append(number)
            self.doubtful_without_id += doubtful and not pending.has_id
        else:
            self.unwritten.append(number)
            if self.refused is None or number < self.refused[0]:
                self.refused = number, error
