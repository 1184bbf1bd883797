"""Publishes the plan with an ordinary Kafka client: what any program would use, and nothing of Ringfence."""

import threading
import time
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from app.demo.traffic import Plan

QUEUE_MESSAGES: Final = 200_000
FLUSH_LIMIT_S: Final = 60.0
_LOOK_EVERY: Final = 1_000
"""Messages between two looks at whether to stop; a look costs more than a message."""


class PublishError(Exception):
    """The broker did not take a message."""


class Publisher(threading.Thread):
    """Sends all messages of a plan as fast as the client takes them.

    It waits at ``plan.hold_at`` until :meth:`release`: the last stretch comes after the kill, so that a fast worker
    cannot be through before it is killed.
    """

    def __init__(self, bootstrap: str, plan: Plan) -> None:
        super().__init__(name="publisher", daemon=True)
        self.handed_over = 0
        """Messages given to the client so far."""
        self.finished = False
        """The broker acknowledged every message."""
        self.error: Exception | None = None
        self._plan = plan
        self._released = threading.Event()
        self._stopped = threading.Event()
        self._refused: KafkaError | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "partitioner": "murmur2_random",  # as Java's default: what has a key is at home where it is sent
                "linger.ms": 20,
                "queue.buffering.max.messages": QUEUE_MESSAGES,
                "delivery.report.only.error": True,
                "log_level": 0,
            }
        )

    def release(self) -> None:
        """Let the last stretch go."""
        self._released.set()

    def stop(self) -> None:
        """Give up; returns when the thread has ended."""
        self._stopped.set()
        self._released.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        """The thread."""
        try:
            self._publish()
        except Exception as error:  # noqa: BLE001 - told to the thread that waits for it
            self.error = error
        finally:
            self._producer.purge()

    def _publish(self) -> None:
        hold_at = self._plan.hold_at
        for index, message in enumerate(self._plan):
            if index == hold_at:
                self._flush()
                self._released.wait()
            if index % _LOOK_EVERY == 0:
                self.handed_over = index
                self._producer.poll(0)
                self._raise_if_refused()
                if self._stopped.is_set():
                    return
            while not self._take(message.address, message.value, message.group, message.headers):
                self._producer.poll(0.05)
        self.handed_over = self._plan.messages
        self.finished = self._flush()

    def _flush(self) -> bool:
        """Wait until the broker acknowledged everything; False when told to stop meanwhile."""
        deadline = time.monotonic() + FLUSH_LIMIT_S
        while missing := self._producer.flush(0.2):
            if self._stopped.is_set():
                return False
            if time.monotonic() > deadline:
                raise PublishError(f"{missing} messages were not acknowledged within {FLUSH_LIMIT_S:g} s")
        self._raise_if_refused()
        return True

    def _take(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, str | bytes | None]],
    ) -> bool:
        """Hand one message over; False when the client's queue is full."""
        try:
            self._producer.produce(topic, value, key, headers=headers, on_delivery=self._reported)
        except BufferError:
            return self._stopped.is_set()
        return True

    def _reported(self, error: KafkaError | None, _message: Message) -> None:
        self._refused = self._refused or error

    def _raise_if_refused(self) -> None:
        if self._refused is not None:
            raise PublishError(f"the broker refused a message: {self._refused.str()}")
