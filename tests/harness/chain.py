"""Faults in a chain of three handlers with state, from orders over billing and ledger to a plain topic."""

import contextlib
import random
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.protocol import wire_names
from tests.support import kafka
from tests.support.consumers.processes import ConsumerProcess
from tests.support.worker import RingfenceProcess, WorkerProcess, configure, wait_for

PARTITIONS: Final = 2
GROUPS: Final = 500
STAGES: Final = ("orders", "billing", "ledger")
HANDLERS: Final = dict(zip(STAGES, ("bill", "book", "close"), strict=True))
LEASE_S: Final = 3.0
FREEZE_S: Final = (LEASE_S + 1, LEASE_S + 3)
AFTER_S: Final = (0.2, 1.5)
PAUSE_S: Final = (0.5, 3.0)
RESENT: Final = 0.03
"""Share of messages that the producer sends twice, with their ID."""
POINTS: Final = ("before-fence", "after-fence", "before-send", "after-send", "before-commit")
DRAIN_LIMIT_S: Final = 600.0
CHAIN_CONCURRENCY: Final = 500


class Chain:
    """The broker, the processes and the traffic."""

    def __init__(self, folder: Path, seed: int, messages: int) -> None:
        self.dice = random.Random(seed)
        self.messages = [
            (self.dice.randrange(GROUPS), self.dice.randrange(1, 1_000)) for _ in range(messages)
        ]
        self.strikes: Counter[str] = Counter()
        self.name = f"chain{seed}"
        self.final = f"{self.name}-final"
        self._allowed = 0
        self._folder = folder
        self._halt = threading.Event()
        self._failure: BaseException | None = None
        self.broker = EmbeddedBroker(
            folder / "broker", properties={"group.min.session.timeout.ms": "1000", "log.retention.ms": "-1"}
        )
        self.workers: list[WorkerProcess] = []
        self.consumers: dict[str, list[ConsumerProcess]] = {}
        self._traffic = threading.Thread(target=self._send, name="traffic", daemon=True)

    # -- its life -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.broker.start()
        kafka.settle(self.bootstrap)
        addresses = [{"name": self.address(stage), "partitions": PARTITIONS} for stage in STAGES]
        config = configure(self._folder, self.bootstrap, self.name, addresses)
        kafka.create_topics(self.bootstrap, {self.final: (PARTITIONS, {})})
        self.workers = [WorkerProcess(config, "worker")]
        quick = ("--lease-timeout", str(LEASE_S), "--lease-idle", "0.5", "--session-timeout", "2")
        chosen = ("--concurrency", str(CHAIN_CONCURRENCY), "--max-attempts", "100000", *quick)
        for stage, handler in HANDLERS.items():
            self.consumers[stage] = [
                ConsumerProcess(
                    config, f"{stage}-{number}", self.address(stage), self.group(stage), *chosen,
                    handler=f"tests.support.consumers.chained_handlers:{handler}", environment={"CHAIN": self.name},
                )
                for number in range(2)
            ]  # fmt: skip
        for process in self.processes:
            process.start()
        for process in self.processes:
            process.wait_ready()
        self._traffic.start()

    def stop(self) -> None:
        self._halt.set()
        for process in self.processes:
            process.destroy()
        if self._traffic.ident is not None:
            self._traffic.join(60)
        self.broker.stop()

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap_servers

    @property
    def processes(self) -> list[RingfenceProcess]:
        return [*self.workers, *(process for pair in self.consumers.values() for process in pair)]

    def address(self, stage: str) -> str:
        return f"{self.name}-{stage}"

    def group(self, stage: str) -> str:
        return f"{self.name}-{stage}-group"

    def log(self) -> str:
        return "\n".join(f"== {process.name}\n{process.log()[-3_000:]}" for process in self.processes)

    def _send(self) -> None:
        try:
            producer = Producer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "partitioner": "murmur2_random",
                    "enable.idempotence": True,
                    "linger.ms": 5,
                    "delivery.timeout.ms": 600_000,
                }
            )
            dice, counts = random.Random(self.name), Counter[int]()
            for number, (group, amount) in enumerate(self.messages):
                while number >= self._allowed and not self._halt.wait(0.01):
                    producer.poll(0)
                if self._halt.is_set():
                    return
                value = f"{counts[group]} {amount}".encode()
                counts[group] += 1
                for _ in range(2 if dice.random() < RESENT else 1):
                    producer.produce(
                        self.address("orders"),
                        value,
                        b"g%d" % group,
                        headers=[("_AMQ_DUPL_ID", b"m%d" % number)],
                    )
                producer.poll(0)
            assert producer.flush(600) == 0
        except BaseException as error:
            self._failure = error

    # -- faults -------------------------------------------------------------------------------------------------

    def strike(self, count: int) -> None:
        kinds: dict[str, tuple[int, Callable[[], None]]] = {
            "kill": (8, lambda: self._victim().kill()),
            "kill-at-point": (4, self._kill_at_point),
            "freeze": (4, self._freeze),
            "fence": (3, self._fence),
            "kill-worker": (1, lambda: self.dice.choice(self.workers).kill()),
            "restart-broker": (1, lambda: self._restart(self.broker.stop)),
            "kill-broker": (1, lambda: self._restart(self.broker.kill)),
        }
        weights = [weight for weight, _ in kinds.values()]
        # Each kind comes once, the others by weight.
        chosen = [*kinds, *self.dice.choices(list(kinds), weights, k=max(0, count - len(kinds)))][:count]
        self.dice.shuffle(chosen)
        for number, name in enumerate(chosen, 1):
            self._allowed = len(self.messages) * number // len(chosen)
            time.sleep(self.dice.uniform(*AFTER_S))  # so that it strikes what is under way
            kinds[name][1]()
            self.strikes[name] += 1
            self.supervise()
            time.sleep(self.dice.uniform(*PAUSE_S))  # the pace of the faults

    def supervise(self) -> None:
        if self._failure is not None:
            raise self._failure
        for process in self.processes:
            if not process.running:
                process.wait_end()
                process.start()

    def _victim(self) -> ConsumerProcess:
        return self.dice.choice([process for pair in self.consumers.values() for process in pair])

    def _kill_at_point(self) -> None:
        victim = self._victim()
        victim.kill()
        victim.start(RINGFENCE_FAILPOINTS=f"{self.dice.choice(POINTS)}:*=kill@{self.dice.randint(1, 6)}")
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not victim.running, victim.log, 15)
        victim.kill()

    def _freeze(self) -> None:
        victim = self._victim()
        if not victim.running:
            return
        victim.signal(signal.SIGSTOP)
        time.sleep(self.dice.uniform(*FREEZE_S))  # longer than a lease
        victim.signal(signal.SIGCONT)

    def _fence(self) -> None:
        stage = self.dice.choice(STAGES)
        name = wire_names.consumer_transactional_id(
            self.name, self.group(stage), f"{self.address(stage)}.accepted", self.dice.randrange(PARTITIONS)
        )
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": name})
        producer.init_transactions(60)

    def _restart(self, end: Callable[[], None]) -> None:
        end()
        self.broker.start()

    # -- the judgement ------------------------------------------------------------------------------------------

    def drain(self) -> None:
        self._allowed = len(self.messages)
        self._traffic.join(DRAIN_LIMIT_S)
        if self._failure is not None:
            raise self._failure

        def passed() -> bool:
            self.supervise()
            return len(kafka.read_all(self.bootstrap, self.final, PARTITIONS)) >= len(self.messages)

        wait_for(passed, lambda: f"{self._state()}\n{self.log()}", DRAIN_LIMIT_S)
        for stage in STAGES:
            topic = f"{self.address(stage)}.accepted"
            wait_for(
                lambda topic=topic, stage=stage: kafka.consumed(
                    self.bootstrap, self.group(stage), topic, PARTITIONS
                ),  # type: ignore[misc]
                self._state,
            )

    def _state(self) -> str:
        topics = [*(f"{self.address(stage)}.accepted" for stage in STAGES), self.final]
        counts = {topic: len(kafka.read_all(self.bootstrap, topic, PARTITIONS)) for topic in topics}
        return f"{len(self.messages)} messages: {counts}"

    def findings(self) -> list[str]:
        expected: dict[bytes | None, list[str]] = defaultdict(list)
        totals: Counter[int] = Counter()
        for group, amount in self.messages:
            key = b"g%d" % group
            totals[group] += amount
            expected[key].append(
                " ".join([str(len(expected[key])), str(amount), *[str(totals[group])] * len(STAGES)])
            )
        found: dict[bytes | None, list[str]] = defaultdict(list)
        for record in kafka.read_all(self.bootstrap, self.final, PARTITIONS):
            found[record.key].append((record.value or b"").decode())
        wrong = [
            f"group {group!r}: {_difference(found[group], values)}"
            for group, values in expected.items()
            if found[group] != values
        ]
        wrong += [f"group {group!r} was never sent" for group in found.keys() - expected.keys()]
        states = {
            b"g%d" % group: f"{len(expected[b'g%d' % group])} {total}".encode()
            for group, total in totals.items()
        }
        for stage in STAGES:
            topic = wire_names.state_topic(self.name, self.group(stage), f"{self.address(stage)}.accepted")
            kept = {record.key: record.value for record in kafka.read_all(self.bootstrap, topic, PARTITIONS)}
            wrong += [
                f"{stage}: the state of {group!r} is {kept.get(group)!r} instead of {state!r}"
                for group, state in states.items()
                if kept.get(group) != state
            ]
            letters = kafka.read_all(self.bootstrap, f"{self.address(stage)}.dlq", PARTITIONS)
            wrong += [f"{stage}: dead letter {dict(letter.headers)}" for letter in letters]
        return wrong


def _difference(found: list[str], expected: list[str]) -> str:
    missing, more = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    if not (missing or more):
        return "out of order"
    return f"missing {sorted(missing)[:3]}, too much {sorted(more)[:3]}"
