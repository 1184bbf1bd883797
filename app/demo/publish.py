"""Producers of the demos: ordinary Kafka clients without any code of Ringfence."""

import threading
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from app.demo.stage import DemoError
from app.demo.traffic import Plan

QUEUE_MESSAGES: Final = 200_000
FLUSH_LIMIT_S: Final = 60.0
Headers = list[tuple[str, str | bytes | None]]
_LOOK_EVERY: Final = 1_000
"""Messages between two checks whether to stop, because a check costs more than a message."""


class Sender:
    """Idempotent producer with the partitioner of Java clients."""

    def __init__(self, bootstrap: str, stopped: Callable[[], bool] = lambda: False) -> None:
        """Create the producer. While it waits, it asks ``stopped`` whether to give up."""
        self._stopped = stopped
        self._refused: KafkaError | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "partitioner": "murmur2_random",  # Java's default: a record with a key goes to its home
                "linger.ms": 20,
                "queue.buffering.max.messages": QUEUE_MESSAGES,
                "delivery.report.only.error": True,
                "log_level": 0,
            }
        )

    def send(self, topic: str, value: bytes | None, key: bytes | None, headers: Headers) -> None:
        """Send a message, after waiting for room in the queue."""
        while not self._stopped():
            try:
                self._producer.produce(topic, value, key, headers=headers, on_delivery=self._reported)
            except BufferError:
                self._producer.poll(0.05)
            else:
                return

    def raise_if_refused(self) -> None:
        """Raise DemoError if the broker refused a message."""
        self._producer.poll(0)
        if self._refused is not None:
            raise DemoError(f"producing ended: the broker refused a message: {self._refused.str()}")

    def flush(self) -> bool:
        """Wait until the broker has acknowledged everything; False = stop requested. Raises DemoError."""
        deadline = time.monotonic() + FLUSH_LIMIT_S
        while missing := self._producer.flush(0.2):
            if self._stopped():
                return False
            if time.monotonic() > deadline:
                raise DemoError(
                    f"producing ended: {missing} messages were not acknowledged within {FLUSH_LIMIT_S:g} s"
                )
        self.raise_if_refused()
        return True

    def purge(self) -> None:
        """Discard unsent messages."""
        self._producer.purge()

    def _reported(self, error: KafkaError | None, _message: Message) -> None:
        self._refused = self._refused or error


class Publisher(threading.Thread):
    """Sends all messages of a plan as fast as the client accepts them.

    It waits at ``plan.hold_at`` until :meth:`release`. The last part comes after the kill, so that a fast
    worker cannot finish before it is killed.
    """

    def __init__(self, bootstrap: str, plan: Plan) -> None:
        super().__init__(name="publisher", daemon=True)
        self.handed_over = 0
        """Number of messages given to the client."""
        self.finished = False
        """Whether the broker has acknowledged every message."""
        self.error: Exception | None = None
        self._plan = plan
        self._released = threading.Event()
        self._stopped = threading.Event()
        self._sender = Sender(bootstrap, self._stopped.is_set)

    def release(self) -> None:
        """Send the last part."""
        self._released.set()

    def stop(self) -> None:
        """Give up, and wait until the thread has ended."""
        self._stopped.set()
        self._released.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        """Publish until everything is sent or :meth:`stop` is called."""
        try:
            self._publish()
        except Exception as error:
            self.error = error
        finally:
            self._sender.purge()

    def _publish(self) -> None:
        hold_at = self._plan.hold_at
        for index, message in enumerate(self._plan):
            if index == hold_at:
                self._sender.flush()
                self._released.wait()
            if index % _LOOK_EVERY == 0:
                self.handed_over = index
                self._sender.raise_if_refused()
                if self._stopped.is_set():
                    return
            self._sender.send(message.address, message.value, message.group, message.headers)
        self.handed_over = self._plan.messages
        self.finished = self._sender.flush()
