"""A producer that may be killed at any moment, and then sends again all that is in doubt; on SIGTERM it ends with all outcomes known."""

import itertools
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from tests.harness.history import TOKEN_HEADER, Outcome
from tests.harness.workloads import journal
from tests.harness.workloads.journal import Journal
from tests.harness.workloads.plan import Message, Plan

CHUNK = 200
"""Messages of one transaction, or between two looks at the clock."""
FLUSH_S = 300.0
TRANSACTION_TIMEOUT_MS = 15_000
"""Time after which the transaction of a killed producer is aborted at the latest; it holds up readers until then."""

Step = tuple[int, Message]


class Traffic:
    """One life of one producer."""

    def __init__(self, bootstrap: str, path: Path, plan: Plan) -> None:
        before = journal.read(path)
        self._bootstrap = bootstrap
        self._plan = plan
        self._journal = Journal(path)
        self._tokens = (f"{plan.name}.{number}".encode() for number in itertools.count(len(before)))
        self._step = max((item.step for item in before), default=-1) + 1
        answered = {item.number for item in before if item.outcome is Outcome.OK}
        self._again: list[Step] = [
            (item.step, plan.numbered(item.number))
            for item in before
            if item.outcome is not Outcome.OK and item.number not in answered
        ]
        self._flying: dict[bytes, Step] = {}
        self._answers: list[tuple[bytes, Outcome]] = []
        self.stopping = False

    def run(self) -> None:
        produce = self._transactions if self._plan.transactional else self._stream
        while not (self.stopping and not self._again):
            try:
                produce()
            except KafkaException as error:
                print(f"{self._plan.name}: {error}: beginning anew", file=sys.stderr, flush=True)
                time.sleep(0.5)  # a pace
            # Sends without an answer of a broken producer are in doubt.
            self._end(Outcome.UNKNOWN)

    def _stream(self) -> None:
        producer = Producer(self._options({"enable.idempotence": True}))
        for chunk in self._chunks():
            self._send(producer, chunk)
            self._settle()
        producer.flush(FLUSH_S)
        self._settle()

    def _transactions(self) -> None:
        options = {"transactional.id": self._plan.name, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS}
        producer = Producer(self._options(options))
        producer.init_transactions(FLUSH_S)
        for number, chunk in enumerate(self._chunks()):
            producer.begin_transaction()
            self._send(producer, chunk)
            producer.flush(FLUSH_S)
            if self._plan.aborts(self._step // CHUNK + number):
                producer.abort_transaction(FLUSH_S)
                self._end(Outcome.FAIL)
            else:
                _commit(producer)
                self._end(Outcome.OK)

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._bootstrap,
            "partitioner": self._plan.partitioner,
            "message.max.bytes": 2_000_000,
            "linger.ms": 5,
            "log_level": 0,
            **options,
        }

    def _chunks(self) -> Iterator[list[Step]]:
        began, sent = time.monotonic(), 0
        while True:
            again, self._again = self._again[:CHUNK], self._again[CHUNK:]
            if not again and self.stopping:
                return
            chunk = again or [
                (step, self._plan.message(step)) for step in range(self._step, self._step + CHUNK)
            ]
            if not again:
                self._step += CHUNK
            yield chunk
            sent += len(chunk)
            # This sets the pace, and stops when the end is near.
            while not self.stopping and (ahead := began + sent / self._plan.rate - time.monotonic()) > 0:
                time.sleep(min(0.05, ahead))

    def _send(self, producer: Producer, chunk: Sequence[Step]) -> None:
        tokens = {next(self._tokens): item for item in chunk}
        self._flying |= tokens
        for token, (step, message) in tokens.items():
            self._journal.sending(token, step, message.number, message.id, message.group)
        self._journal.flush()
        for token, item in tokens.items():
            self._produce(producer, token, item[1])

    def _produce(self, producer: Producer, token: bytes, message: Message) -> None:
        headers: list[tuple[str, str | bytes | None]] = [(TOKEN_HEADER, token), *message.headers]
        if message.id is not None:
            headers.append(("_AMQ_DUPL_ID", message.id))

        def delivered(error: KafkaError | None, _: Any) -> None:
            self._answers.append((token, Outcome.OK if error is None else Outcome.UNKNOWN))

        while True:
            try:
                producer.produce(
                    self._plan.topic, message.value, message.group, headers=headers, on_delivery=delivered
                )
                producer.poll(0)
                return
            except BufferError:
                producer.poll(0.1)

    def _settle(self) -> None:
        answers, self._answers = self._answers, []
        for token, outcome in answers:
            self._note(token, outcome)
        self._journal.flush()

    def _end(self, outcome: Outcome) -> None:
        self._answers.clear()
        for token in list(self._flying):
            self._note(token, outcome)
        self._journal.flush()

    def _note(self, token: bytes, outcome: Outcome) -> None:
        """Note an outcome; a message that is not there, or may not be, is sent again under the same ID."""
        step = self._flying.pop(token)
        self._journal.outcome(token, outcome)
        if outcome is not Outcome.OK:
            self._again.append(step)


def _commit(producer: Producer) -> None:
    while True:
        try:
            producer.commit_transaction(FLUSH_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


def main() -> None:
    bootstrap, path, plan = sys.argv[1:]
    traffic = Traffic(bootstrap, Path(path), Plan.from_json(plan))

    def stop(*_: object) -> None:
        traffic.stopping = True

    signal.signal(signal.SIGTERM, stop)
    traffic.run()


if __name__ == "__main__":
    main()
