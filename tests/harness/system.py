"""The system under faults: a broker, workers on links of their own, and producers; all real processes."""

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.harness.history import History, Record, Target, records
from tests.harness.source_cluster import PROCESSES, Origin
from tests.harness.workloads import journal
from tests.harness.workloads.catalogue import AMPLE, Workload
from tests.harness.workloads.plan import Plan
from tests.support import kafka
from tests.support.brokers.linked import LinkedBroker, linked_broker
from tests.support.brokers.several import Several, several
from tests.support.checkout import ROOT
from tests.support.worker import RingfenceProcess, WorkerProcess, configure, wait_for

APP_ID = "faults"
DRAIN_LIMIT_S = 240.0
PRODUCER_LIMIT_S = 120.0
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Settings of a broker that refuses only what a rule denies."""
_SIZE = "RINGFENCE_ADDRESS_DEFAULTS__ID_CACHE_SIZE"


class ProducerProcess:
    """One producer; its journal outlives it."""

    def __init__(self, folder: Path, bootstrap: str, plan: Plan) -> None:
        self.journal = folder / f"{plan.name}.journal"
        self._log = folder / f"{plan.name}.log"
        self._command = [
            sys.executable, "-m", "tests.harness.workloads.producer", bootstrap, str(self.journal), plan.to_json(),
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, stdout=log, stderr=log, env=dict(os.environ)
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def mark(self) -> int:
        return self.journal.stat().st_size

    def doubt(self, mark: int) -> None:
        """Put the outcomes since ``mark`` in doubt: they are not true any more. The producer must not be running."""
        journal.doubt(self.journal, mark)

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        assert self._process is not None
        code = self._process.wait(PRODUCER_LIMIT_S)
        assert code in {0, -signal.SIGTERM}, f"producer ended with {code}: {self._log.read_text()}"


class System:
    """All processes of one round. Workers run from :meth:`start` to the end, whatever nemeses do to them."""

    def __init__(
        self, folder: Path, workloads: Sequence[Workload], *, partitions: int, workers: int, brokers: int = 1
    ) -> None:
        """``brokers``: several brokers have no links."""
        self.folder = folder
        self.workloads = list(workloads)
        self.partitions = partitions
        self._workers = workers
        self._stack = contextlib.ExitStack()
        self._brokers = brokers
        self.broker: LinkedBroker
        self.several: Several
        self.bootstrap = ""
        self.config: Path
        self.origin: Origin | None = None
        self.source: list[Record] = []
        self.workers: list[WorkerProcess] = []
        self.producers: list[ProducerProcess] = []

    def __enter__(self) -> Self:
        across = next((workload for workload in self.workloads if workload.user_ids), None)
        with contextlib.ExitStack() as stack:
            reached = self._cluster(stack, self._workers + (PROCESSES if across else 0))
            settings = [workload.settings(self.partitions) for workload in self.workloads]
            self.config = configure(self.folder, self.bootstrap, APP_ID, settings)
            stack.callback(self._destroy)
            for number, bootstrap in enumerate(reached[: self._workers]):
                environment = {"RINGFENCE_KAFKA__BOOTSTRAP_SERVERS": bootstrap, _SIZE: str(AMPLE)}
                self.workers.append(WorkerProcess(self.config, f"w{number}", environment))
            if across is not None:
                folder = self.folder / "origin"
                folder.mkdir()
                self.origin = Origin(
                    folder, across.name, self.partitions, across.user_ids,
                    self.broker.links[self._workers :], stack,
                )  # fmt: skip
            self.producers = [
                ProducerProcess(
                    self.folder,
                    self.origin.bootstrap if workload.user_ids and self.origin else self.bootstrap,
                    plan,
                )
                for workload in self.workloads
                for plan in workload.plans
            ]
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _cluster(self, stack: contextlib.ExitStack, links: int) -> list[str]:
        if self._brokers > 1:
            self.several = stack.enter_context(several(self.folder / "brokers"))
            self.bootstrap = self.several.bootstrap_servers
            return [self.bootstrap] * links
        self.broker = stack.enter_context(
            linked_broker(self.folder / "broker", links=links, properties=AUTHORIZER)
        )
        self.bootstrap = self.broker.bootstrap
        return [link.bootstrap for link in self.broker.links]

    def start(self) -> None:
        """Start workers, bridges and producers; return when something was accepted at each address with producers."""
        for worker in self.workers:
            worker.start()
        for worker in self.workers:
            worker.wait_ready()
        if self.origin is not None:
            self.origin.start()
        for producer in self.producers:
            producer.start()
        for workload in self.workloads:
            if not workload.plans:
                continue
            topic = f"{workload.name}.accepted"
            wait_for(
                lambda topic=topic: any(kafka.end_offsets(self.bootstrap, topic, self.partitions)),  # type: ignore[misc]
                self.report,
            )

    @property
    def processes(self) -> list[RingfenceProcess]:
        return [*self.workers, *(self.origin.processes if self.origin else [])]

    def supervise(self) -> None:
        """Restart processes that were turned away: a process that starts while the broker is down finds its link closed."""
        for process in self.processes:
            if process.turned_away:
                process.start()

    def stop_producers(self) -> None:
        for producer in self.producers:
            producer.stop()
        for producer in self.producers:
            producer.wait()

    def drain(self) -> list[History]:
        """Wait until all input is processed, and only then read the outputs: some of them are in other addresses."""
        self.supervise()
        if self.origin is not None:
            self.source = self.origin.drain()
        inputs = [self._processed(workload.name) for workload in self.workloads]
        for workload in self.workloads:
            if workload.lanes != 1:  # one lane forwards nothing
                self._processed(f"{APP_ID}-{workload.name}-forward", workload.lanes)
        return [self._drained(*workload) for workload in zip(self.workloads, inputs, strict=True)]

    def _drained(self, workload: Workload, inputs: list[Record]) -> History:
        return History(
            input_topic=workload.name,
            partitions=self.partitions,
            capacity=workload.capacity,
            min_age_ms=workload.min_age_ms,
            size=workload.size,
            home=workload.home(self.partitions),
            lanes=workload.lanes,
            sends=[
                send
                for plan in workload.plans
                for send in journal.sends(self.folder / f"{plan.name}.journal")
            ],
            inputs=inputs,
            accepted=self._read(f"{workload.name}.accepted"),
            diverted=self._read(f"{workload.name}.duplicates")
            if workload.divert and not workload.observe
            else [],
            quarantined=self._read(f"{workload.name}.quarantine"),
            log_starts={},
            divert=workload.divert and not workload.observe,
            observe=workload.observe,
            by_value=workload.by_value,
            others={target: Target(f"{target}.accepted") for target in workload.targets},
        )

    def _processed(self, topic: str, partitions: int = 0) -> list[Record]:
        count = partitions or self.partitions

        def done() -> bool:
            self.supervise()
            return kafka.consumed(self.bootstrap, APP_ID, topic, count)

        wait_for(done, lambda: f"{topic} is not processed\n{self.report()}", DRAIN_LIMIT_S)
        return self._read(topic, count)

    def _read(self, topic: str, partitions: int = 0) -> list[Record]:
        return records(topic, kafka.read_all(self.bootstrap, topic, partitions or self.partitions))

    def report(self) -> str:
        told = [f"{worker.health()}\n{worker.log()[-3_000:]}" for worker in self.workers]
        return "\n".join(told if self.origin is None else [*told, self.origin.report()])

    def some_worker(self, rng: random.Random) -> WorkerProcess:
        worker = rng.choice(self.live_workers() or self.workers)
        if not worker.running:
            worker.start()
        return worker

    def live_workers(self) -> list[WorkerProcess]:
        return [worker for worker in self.workers if worker.running and not worker.frozen]

    @property
    def kills(self) -> int:
        return sum(worker.kills for worker in self.workers) + (self.origin.kills if self.origin else 0)

    def state_folder(self, worker: WorkerProcess) -> Path:
        return self.folder / "data" / f"w{self.workers.index(worker)}"

    @staticmethod
    def other_size(rng: random.Random) -> dict[str, str]:
        return {_SIZE: str(AMPLE + rng.randint(1, 1_000))}

    def _destroy(self) -> None:
        for producer in self.producers:
            producer.kill()
        for worker in self.workers:
            worker.destroy()
