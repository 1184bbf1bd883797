"""Consumers of the chain: start, kill and end of their handlers."""

import time
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError

from app.demo.processes import Child
from app.demo.stage import Stage, log_of
from app.demo.watch import Offsets, reader
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.protocol import wire_names

SOURCE: Final = "orders"
ADDRESSES: Final = ("billing", "ledger")
"""Addresses of the records that the handlers of the same names send."""
HANDLERS: Final = {name: f"app.demo.chain.{name}:handle" for name in ADDRESSES}
CONCURRENCY: Final = 100
"""Concurrency of a handler. After a kill, the dead process may have started this many messages."""
SESSION_TIMEOUT_S: Final = 6
"""Session timeout of the consumers in seconds: the smallest that brokers accept by default."""
LEASE_TIMEOUT_S: Final = 3
STALL_LIMIT_S: Final = 90.0
_LOOK_EVERY_S: Final = 0.05

Ends = dict[int, int]
"""Partition of ``billing`` → its end."""


class ChainError(RingfenceError):
    """A handler of the chain failed."""

    exit_code = 1


class Chain:
    """``ringfence consume`` for each handler. The first handler of ``billing`` is killed while it works."""

    def __init__(self, stage: Stage, bootstrap: str, config: Path, partitions: int, kill_at: int) -> None:
        """Prepare the chain. ``kill_at``: records and markers in ``billing`` when its handler is killed."""
        self._stage = stage
        self._bootstrap = bootstrap
        self._config = config
        self._partitions = partitions
        self._kill_at = kill_at
        self._billing = Offsets(bootstrap, "demo-chain", ["billing"], partitions, "read_committed")
        stage.stack.callback(self._billing.close)
        self._running: list[Child] = []
        self._started = 0
        self.killed_at: Ends | None = None
        """Ends of ``billing`` when its handler was killed; None = it was not killed yet."""

    def start(self) -> None:
        """Start both handlers."""
        self._start("billing", SOURCE)
        self._start("ledger", "billing")

    def check(self) -> None:
        """Kill the handler of ``billing`` when due, start its successor. ChainError: a handler ended."""
        for child in self._running:
            if child.exit_code is not None:
                raise ChainError(f"a handler of the chain ended: fix what its log names\n{log_of(child)}")
        if self._running and self.killed_at is None and self._billing.written() >= self._kill_at:
            victim = self._running.pop(0)
            victim.kill()
            self.killed_at = self._billing.ends()["billing"]
            self._start("billing", SOURCE)
            self._stage.display.phase(
                "handler orders → billing killed with SIGKILL: another process takes over"
            )

    def finish(self) -> None:
        """Wait until ``ledger`` has as many messages as ``orders``.

        ``orders`` must not get more messages. Raises ChainError if the chain is stuck.
        """
        deadline = time.monotonic() + STALL_LIMIT_S
        while self.killed_at is None:
            self.check()
            if time.monotonic() > deadline:
                raise ChainError(f"billing has fewer than {self._kill_at:,} records\n{self.logs}")
            self._stage.interruption.sleep(_LOOK_EVERY_S)
        self._stage.display.phase("chain orders → billing → ledger: the rest of it")
        first, last = (wire_names.accepted_topic(name) for name in (SOURCE, "ledger"))
        counts, unread = {first: 0, last: 0}, set(range(self._partitions))
        consumer = reader(self._bootstrap, counts, self._partitions, **{"enable.partition.eof": True})
        self._stage.stack.callback(consumer.close)
        progressed = time.monotonic()
        while unread or counts[last] < counts[first]:
            self.check()
            for message in consumer.consume(5_000, timeout=_LOOK_EVERY_S):
                topic, error = message.topic(), message.error()
                if error is None and topic is not None:
                    counts[topic] += 1
                    progressed = time.monotonic()
                elif error is not None and error.code() == KafkaError._PARTITION_EOF and topic == first:
                    unread.discard(message.partition() or 0)
            if time.monotonic() - progressed > STALL_LIMIT_S:
                raise ChainError(f"the chain is stuck at {counts} records\n{self.logs}")

    def stop(self) -> bool:
        """Stop the handlers by SIGTERM; return whether all ended in order within the limit."""
        codes = [self._stage.stop(child) for child in self._running]
        return not any(code != 0 for code in codes)

    @property
    def logs(self) -> str:
        """Last lines of the handlers' logs."""
        return "\n".join(map(log_of, self._running))

    def _start(self, name: str, address: str) -> None:
        self._started += 1
        arguments = ["-m", "app", "consume", address, "--config", str(self._config)]
        arguments += ["--handler", HANDLERS[name], "--consumer-group", name]
        arguments += ["--concurrency", str(CONCURRENCY), "--web-port", "0"]
        arguments += ["--session-timeout", str(SESSION_TIMEOUT_S), "--lease-timeout", str(LEASE_TIMEOUT_S)]
        log = self._stage.directory / f"handler-{self._started}-{name}.log"
        self._running.append(self._stage.start(arguments, log))
