"""The contest: topics, traffic, rounds. What ran is kept although something else failed."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

import native
from app.embedded import jars
from app.embedded.broker import EmbeddedBroker
from bench import topics
from bench.contenders import ringfence
from bench.errors import BenchError
from bench.job import Job, Run, perform
from bench.measure import ROOT
from bench.traffic import PARTS, Expected, Message, Plan, generate, publish, transactions
from conf import java

RINGFENCE: Final = "ringfence"
FORWARDED: Final = "forwarded"
COPY: Final = "bare copy"
TRANSACTIONS: Final = "transactions"
PYTHON: Final = "in Python"
JAVA: Final = "Java copy"
PLAIN: Final = "plain Faust"
CONTENDERS: Final = {
    "ringfence": RINGFENCE,
    "transactions": TRANSACTIONS,
    "forwarded": FORWARDED,
    "python": PYTHON,
    "copy": COPY,
    "java": JAVA,
    "faust": PLAIN,
}
"""As ``--only`` names them."""
COPIES: Final = (COPY, JAVA)
"""They let resends pass."""
COMPARED: Final = (
    (RINGFENCE, COPY),
    (RINGFENCE, PYTHON),
    (RINGFENCE, JAVA),
    (FORWARDED, RINGFENCE),
    (TRANSACTIONS, RINGFENCE),
)
"""Each by the other."""
_ROUND: Final = (JAVA, COPY, RINGFENCE, PYTHON, TRANSACTIONS, FORWARDED)
"""Those that are compared run one after the other, in this order or the reverse one."""
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
    failures: list[str] = field(default_factory=list)

    @property
    def transactions_plan(self) -> Plan:
        """Of as many messages in all, some of which make a transaction."""
        return replace(self.plan, messages=self.plan.messages // PARTS)

    def runs(self, contender: str) -> list[Run]:
        """All runs of a contender, in order."""
        return [each[contender] for each in self.rounds if contender in each]

    def pairs(self, contender: str, other: str) -> list[tuple[Run, Run]]:
        """The two of each round in which both succeeded."""
        return [(each[contender], each[other]) for each in self.rounds if contender in each and other in each]

    def exact(self, contender: str) -> bool:
        """Whether each run's output is what is expected, by number of records and of IDs, and by order in a group."""
        distinct = self.expected[RINGFENCE] if contender in COPIES else self.expected[contender]
        return all(
            each.outputs == self.expected[contender]
            and each.distinct_outputs == distinct
            and each.out_of_order == 0
            for each in self.runs(contender)
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

    def run(self, rounds: int, only: Sequence[str]) -> None:
        """Ringfence, at home and forwarding, and the copy in turn, changing who begins; the plain agent once, at the end."""
        outcome = self._outcome
        rivals = {
            JAVA: self._java,
            COPY: self._copy,
            PYTHON: self._in_python,
            RINGFENCE: self._ringfence,
            TRANSACTIONS: self._transactions,
            FORWARDED: self._forwarded,
        }
        chosen = [each for each in _ROUND if each in only]
        if TRANSACTIONS in chosen:
            transactions_expected = self._fill(TRANSACTIONS_INPUT, outcome.transactions_plan, transactions)
            outcome.expected[TRANSACTIONS] = transactions_expected.distinct * PARTS
        if set(chosen) - {TRANSACTIONS}:
            expected = self._fill(INPUT, outcome.plan)
            outcome.expected |= dict.fromkeys((RINGFENCE, PYTHON, FORWARDED), expected.distinct)
            outcome.expected |= dict.fromkeys(COPIES, expected.total)
        for number in range(rounds if chosen else 0):
            outcome.rounds.append({})
            for contender in chosen if number % 2 == 0 else chosen[::-1]:
                self._attempt(rivals[contender])
        if PLAIN in only:
            outcome.expected[PLAIN] = self._fill(PLAIN_INPUT, outcome.plain_plan).distinct
            outcome.rounds.append({})
            self._attempt(self._plain)

    def _fill(self, topic: str, plan: Plan, make: Callable[[Plan], Iterator[Message]] = generate) -> Expected:
        self._say(f"producing {plan.messages:,} messages into {topic}")
        topics.create(self._bootstrap, topic, plan.partitions)
        expected = publish(self._bootstrap, topic, make(plan))
        self._say(f"  {expected.total - expected.distinct:,} of them are resends")
        return expected

    def _attempt(self, contender: Callable[[str, Path], Run]) -> None:
        number = next(self._numbers)
        name = f"bench-{number}"
        try:
            run = contender(name, self._folder / name)
        except (BenchError, KafkaException) as error:
            self._outcome.failures.append(str(error))
            self._say(f"  failed: {error}")
            return
        self._outcome.rounds[-1][run.contender] = run
        self._say(
            f"  {run.rate:,.0f} messages/s, {run.cpu_s_per_million:.2f} CPU s per million, {run.outputs:,} outputs"
            + (f", {run.forwarded:,} forwarded" if run.forwarded else "")
        )

    def _ringfence(self, name: str, folder: Path) -> Run:
        worker = ringfence.prepare(folder, self._bootstrap, name, INPUT, self._outcome.plan.ring)
        return self._worker(RINGFENCE, worker, name, folder)

    def _in_python(self, name: str, folder: Path) -> Run:
        """The same worker without the native core."""
        worker = ringfence.prepare(folder, self._bootstrap, name, INPUT, self._outcome.plan.ring)
        return self._worker(PYTHON, worker, name, folder, environ=((native.VARIABLE, "off"),))

    def _transactions(self, name: str, folder: Path) -> Run:
        """As many messages, as parts of transactions."""
        worker = ringfence.prepare(folder, self._bootstrap, name, TRANSACTIONS_INPUT, self._outcome.plan.ring)
        return self._worker(TRANSACTIONS, worker, name, folder, TRANSACTIONS_INPUT, PARTS)

    def _forwarded(self, name: str, folder: Path) -> Run:
        """The same traffic, to a worker that is told of another partitioner than its producer's."""
        ring = self._outcome.plan.forwarded_ring
        worker = ringfence.prepare(folder, self._bootstrap, name, INPUT, ring, "crc32")
        return self._worker(FORWARDED, worker, name, folder)

    def _worker(
        self,
        contender: str,
        worker: ringfence.Worker,
        name: str,
        folder: Path,
        source: str = INPUT,
        parts: int = 1,
        environ: tuple[tuple[str, str], ...] = (),
    ) -> Run:
        plan = self._outcome.plan
        job = Job(
            contender,
            worker.command,
            name,
            source,
            worker.output,
            plan.partitions,
            plan.messages // parts,
            worker.forward,
            parts=parts,
            environ=environ,
        )
        return self._perform(job, folder, (worker.forward, *worker.more_topics))

    def _copy(self, name: str, folder: Path) -> Run:
        plan = self._outcome.plan
        job = Job(COPY, (), name, INPUT, f"{name}-copied", plan.partitions, plan.messages)
        return self._program("bare_copy", job, folder)

    def _java(self, name: str, folder: Path) -> Run:
        plan = self._outcome.plan
        output = f"{name}-copied"
        folder.mkdir(parents=True)
        topics.create(self._bootstrap, output, plan.partitions)
        source = ROOT / "bench" / "contenders" / "PlainCopy.java"
        command = ("-Xmx1G", "-cp", jars.class_path(), str(source), self._bootstrap, name, INPUT, output)
        job = Job(
            JAVA, command, name, INPUT, output, plan.partitions, plan.messages, program=str(java.find())
        )
        return self._perform(job, folder, ())

    def _plain(self, name: str, folder: Path) -> Run:
        plan = self._outcome.plain_plan
        job = Job(
            PLAIN, (), name, PLAIN_INPUT, f"{name}-accepted", plan.partitions, plan.messages, reports=True
        )
        changelog = f"{name}-seen-changelog"
        return self._program("plain_faust", job, folder, ("--data", str(folder / "data")), (changelog,))

    def _program(
        self, module: str, job: Job, folder: Path, more: tuple[str, ...] = (), internal: Sequence[str] = ()
    ) -> Run:
        folder.mkdir(parents=True)
        topics.create(self._bootstrap, job.output, job.partitions)
        command = (
            "-m", f"bench.contenders.{module}", "--bootstrap", self._bootstrap, "--group", job.group,
            "--input", job.input, "--output", job.output, "--partitions", str(job.partitions), *more,
        )  # fmt: skip
        return self._perform(replace(job, command=command), folder, internal)

    def _perform(self, job: Job, folder: Path, internal: Sequence[str]) -> Run:
        self._say(f"{job.contender}: {job.messages * job.parts:,} messages")
        try:
            return perform(job, self._bootstrap, self._broker.pid, folder / "output.log")
        finally:
            topics.delete(self._bootstrap, [job.output, *internal])
