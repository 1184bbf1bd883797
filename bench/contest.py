"""The contest: topics, traffic, rounds. Finished runs are kept although something else failed."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from app.embedded.broker import EmbeddedBroker
from bench import startup, topics, trickle
from bench.errors import BenchError
from bench.job import Run, perform, spread
from bench.startup import (
    COPIES,
    COPY,
    FORWARDED,
    JAVA,
    JAVA_RING,
    LIBRDKAFKA,
    PLAIN,
    PYTHON,
    QUIX,
    RINGFENCE,
    STREAMS,
    TRANSACTIONS,
    Place,
)
from bench.traffic import PARTS, Expected, Message, Plan, generate, publish, transactions
from bench.trickle import Trickle
from ringfence_kafka.errors import PrerequisiteError

CONTENDERS: Final = {
    "ringfence": RINGFENCE,
    "transactions": TRANSACTIONS,
    "forwarded": FORWARDED,
    "python": PYTHON,
    "streams": STREAMS,
    "librdkafka": LIBRDKAFKA,
    "java-ring": JAVA_RING,
    "quix": QUIX,
    "faust": PLAIN,
    "java": JAVA,
    "copy": COPY,
}
"""As ``--only`` names them."""
COMPARED: Final = (
    (RINGFENCE, STREAMS),
    (RINGFENCE, LIBRDKAFKA),
    (RINGFENCE, JAVA_RING),
    (RINGFENCE, QUIX),
    (RINGFENCE, JAVA),
    (RINGFENCE, COPY),
    (RINGFENCE, PYTHON),
    (FORWARDED, RINGFENCE),
    (TRANSACTIONS, RINGFENCE),
)
"""Each by the other."""
_ROUND: Final = (
    QUIX, STREAMS, JAVA_RING, LIBRDKAFKA, JAVA, COPY, RINGFENCE, PYTHON, TRANSACTIONS, FORWARDED,
)  # fmt: skip
"""Those that are compared run one after the other, in this order or the reverse one."""
_TRICKLED: Final = (RINGFENCE, PYTHON, STREAMS, LIBRDKAFKA, JAVA_RING, QUIX, JAVA, COPY)
"""Contenders with a measurement of latency. The plain agent is too slow for it, and the others are Ringfence on other traffic."""
INPUT: Final = "bench"
PLAIN_INPUT: Final = "bench-plain"
TRANSACTIONS_INPUT: Final = "bench-transactions"

Say = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    """Everything that is known at the end."""

    plan: Plan
    plain_plan: Plan
    expected: dict[str, int] = field(default_factory=dict)
    """Contender → records that its output should have."""
    rounds: list[dict[str, Run]] = field(default_factory=list)
    """A round's runs by contender; a failed one is missing."""
    trickles: dict[str, Trickle] = field(default_factory=dict)
    """Contender → what it did with few messages."""
    slow: dict[str, float] = field(default_factory=dict)
    """Contender → messages/s, of those that are too slow for that."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Contender → why it could not be run here at all."""
    failures: list[str] = field(default_factory=list)

    @property
    def transactions_plan(self) -> Plan:
        """Plan of as many messages in all, some of which make a transaction."""
        return replace(self.plan, messages=self.plan.messages // PARTS)

    def runs(self, contender: str) -> list[Run]:
        """All runs of a contender, in order."""
        return [round_[contender] for round_ in self.rounds if contender in round_]

    def pairs(self, contender: str, other: str) -> list[tuple[Run, Run]]:
        """Return the two of each round in which both succeeded."""
        return [
            (round_[contender], round_[other])
            for round_ in self.rounds
            if contender in round_ and other in round_
        ]

    def exact(self, contender: str) -> bool:
        """Whether each run's output is what is expected, by number of records and of IDs, and by order in a group."""
        distinct = self.expected[RINGFENCE] if contender in COPIES else self.expected[contender]
        trickled = self.trickles.get(contender)
        return (trickled is None or trickled.exact) and all(
            run.outputs == self.expected[contender]
            and run.distinct_outputs == distinct
            and run.out_of_order == 0
            for run in self.runs(contender)
        )


class Contest:
    """Runs the contenders on one broker; each run has a group and an output topic of its own."""

    def __init__(self, broker: EmbeddedBroker, folder: Path, outcome: Outcome, say: Say) -> None:
        self._broker = broker
        self._bootstrap = broker.bootstrap_servers
        self._folder = folder
        self._outcome = outcome
        self._say = say
        self._numbers = itertools.count(1)

    def run(self, rounds: int, only: Sequence[str], trickle_s: float) -> None:
        """Contenders in turn, changing who begins; the plain agent once. Then each once with few messages, for so many seconds."""
        outcome = self._outcome
        chosen = [item for item in _ROUND if item in only]
        if TRANSACTIONS in chosen:
            transactions_expected = self._fill(TRANSACTIONS_INPUT, outcome.transactions_plan, transactions)
            outcome.expected[TRANSACTIONS] = transactions_expected.distinct * PARTS
        if set(chosen) - {TRANSACTIONS}:
            expected = self._fill(INPUT, outcome.plan)
            outcome.expected |= dict.fromkeys(set(_ROUND) - {TRANSACTIONS, *COPIES}, expected.distinct)
            outcome.expected |= dict.fromkeys(COPIES, expected.total)
        for number in range(rounds if chosen else 0):
            outcome.rounds.append({})
            for contender in chosen if number % 2 == 0 else chosen[::-1]:
                self._attempt(contender)
        if PLAIN in only:
            outcome.expected[PLAIN] = self._fill(PLAIN_INPUT, outcome.plain_plan).distinct
            outcome.rounds.append({})
            self._attempt(PLAIN)
        for contender in (item for item in _TRICKLED if item in only and trickle_s):
            self._trickle(contender, trickle_s)

    def _fill(self, topic: str, plan: Plan, make: Callable[[Plan], Iterator[Message]] = generate) -> Expected:
        self._say(f"producing {plan.messages:,} messages into {topic}")
        topics.create(self._bootstrap, topic, plan.partitions)
        expected = publish(self._bootstrap, topic, make(plan))
        self._say(f"  {expected.total - expected.distinct:,} of them are resends")
        return expected

    def _place(self, contender: str) -> Place:
        name = f"bench-{next(self._numbers)}"
        topic = {PLAIN: PLAIN_INPUT, TRANSACTIONS: TRANSACTIONS_INPUT}.get(contender, INPUT)
        plan = self._outcome.plain_plan if contender == PLAIN else self._outcome.plan
        return Place(self._bootstrap, self._folder / name, name, topic, plan)

    def _attempt(self, contender: str) -> None:
        try:
            run = self._perform(contender)
        except (BenchError, KafkaException, PrerequisiteError) as error:
            self._outcome.failures.append(str(error))
            self._say(f"  failed: {error}")
            return
        self._outcome.rounds[-1][run.contender] = run
        self._say(
            f"  {run.rate:,.0f} messages/s, {run.cpu_s_per_million:.2f} CPU s per million, {run.outputs:,} outputs"
            + (f", {run.forwarded:,} forwarded" if run.forwarded else "")
        )

    def _perform(self, contender: str) -> Run:
        place = self._place(contender)
        self._say(f"{contender}: {place.plan.messages:,} messages")
        ready = startup.prepare(contender, place)
        try:
            return perform(ready.job, self._bootstrap, [self._broker.pid], place.folder / "output.log")
        finally:
            topics.delete(self._bootstrap, [ready.job.output, *ready.internal])

    def _trickle(self, contender: str, seconds: float) -> None:
        """Measure the latency of a contender, unless it failed with a backlog, or is slower than the traffic and would only fall behind."""
        runs = self._outcome.runs(contender)
        if not runs:
            return
        rate = spread([run.rate for run in runs])[1]
        if rate < trickle.RATE:
            self._outcome.slow[contender] = rate
            return
        self._say(f"{contender}: {trickle.RATE:,} messages/s")
        place = self._place(contender)
        try:
            found = trickle.run(
                contender, replace(place, input=f"{place.name}-in"), self._broker.pid, seconds
            )
        except (BenchError, KafkaException) as error:
            self._outcome.failures.append(f"{contender}, {trickle.RATE:,} messages/s: {error}")
            self._say(f"  failed: {error}")
            return
        self._outcome.trickles[contender] = found
        self._say(
            f"  p50 {found.p50_s * 1000:.0f} ms, p99 {found.p99_s * 1000:.0f} ms, {found.cpu_s_per_million:.1f} CPU s per million"
        )
