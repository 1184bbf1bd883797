"""``ringfence demo``: broker, topics, worker, traffic, a chain of handlers, kills, independent checks."""

import datetime as dt
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.demo.chain.consumers import ADDRESSES as CHAINED
from app.demo.chain.consumers import SESSION_TIMEOUT_S, Chain
from app.demo.processes import Child, WorkerProcess
from app.demo.publish import Publisher
from app.demo.stage import CHECK_LIMIT_S, STOP_LIMIT_S, DemoError, Stage, ended, log_of, play
from app.demo.traffic import ADDRESSES, ONE_RING, PLAIN, Plan
from app.demo.watch import AcceptedReader, Offsets, Positions, total
from app.embedded import ports
from app.embedded.broker import EmbeddedBroker
from app.embedded.broker_process import HOST
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.protocol import wire_names

MESSAGES: Final = 100_000
SEED: Final = 1
APP_ID: Final = "demo"
PARTITIONS: Final = 4
CHAIN_KILL_SHARE: Final = 0.05
"""Share of all messages in ``billing`` at which its handler is killed, early enough that far more follow."""
STALL_LIMIT_S: Final = 90.0
"""Time without a commit after which the worker counts as stuck, in seconds."""
SETTLE_LIMIT_S: Final = 5.0
RECONCILE_LIMIT_S: Final = 600.0
"""Time limit of the reconciliation run, in seconds. The first one fetches Spark's Kafka connector."""
REPORTS: Final = Path("data/demo")
"""Folder of reports below the current folder. Reports outlast the demo."""
_LOOK_EVERY_S: Final = 0.05
_HEALTH_EVERY_S: Final = 0.25


class WorkerError(RingfenceError):
    """The worker failed. This is a result of the demo, so the exit code is 1."""

    exit_code = 1


def run_demo(messages: int = MESSAGES, keep: bool = False, seed: int = SEED) -> int:
    """Run the demo, print its result, and return the exit code.

    It is 0 if every message was accepted exactly once, in order and unchanged, and else 1; 2 = could not run;
    128 + the signal's number = interrupted. ``keep``: keep the folder even after a success.

    Raises:
        RingfenceError: The demo could not run. No process is left.
    """
    plan = Plan(messages, seed)
    return play("ringfence-demo-", keep, messages, lambda stage: Demo(plan, stage).run())


@dataclass
class _Kill:
    """The kill: the worker's position by partition, time of its death, time when its successor was ready."""

    positions: Positions
    at: float
    back: float | None = None


class Demo:
    """One run of the demo on a stage."""

    _worker: WorkerProcess
    _chain: Chain

    def __init__(self, plan: Plan, stage: Stage) -> None:
        self._plan = plan
        self._stage = stage
        self._display = stage.display
        self._broker = EmbeddedBroker(stage.directory / "broker")
        self._config = stage.directory / "ringfence.toml"
        self._web_port = ports.choose(HOST)
        self._workers = 0
        self._killed: _Kill | None = None

    def run(self) -> int:
        """Run all phases, and return the exit code."""
        self._display.phase("broker: a real Kafka of one node")
        self._stage.start_broker(self._broker)
        self._display.phase("topics and worker")
        text = configuration(
            self._broker.bootstrap_servers, self._stage.directory, self._plan, self._web_port
        )
        self._config.write_text(text, "utf-8")
        self._stage.create_topics(self._config)
        self._worker = self._start_worker()
        if not self._stage.becomes_ready(self._worker):
            raise DemoError(f"the worker did not start: fix what its log names\n{log_of(self._worker)}")
        kill_at = int(CHAIN_KILL_SHARE * self._plan.messages)
        self._chain = Chain(self._stage, self._broker.bootstrap_servers, self._config, PARTITIONS, kill_at)
        seconds = self._run_traffic()
        self._chain.finish()
        chain_stopped = self._chain.stop()
        stopped = self._stage.stop(self._worker) == 0
        self._display.phase("check: another program compares all inputs with all outputs")
        self._display.close()
        check_of_chain = self._start_check_of_chain()
        code = self._check(seconds)
        self._show_outage(seconds)
        code = max(code, self._result_of_chain(check_of_chain))
        if code == 0:
            self._display.hand_over("The reconciliation run on Spark:")
            code = self._reconcile()
        if code == 1:
            self._display.say(f"the last lines of the worker's log:\n{log_of(self._worker)}")
        if not chain_stopped:
            self._display.say(f"a handler did not stop cleanly after SIGTERM:\n{self._chain.logs}")
        if not stopped:
            self._display.say(
                f"the worker did not stop cleanly within {STOP_LIMIT_S:g} s of SIGTERM:\n{log_of(self._worker)}"
            )
        return code if stopped and chain_stopped else max(code, 1)

    def _start_worker(self) -> WorkerProcess:
        self._workers += 1
        log = self._stage.directory / f"worker-{self._workers}.log"
        return self._stage.start_worker(self._config, self._web_port, log)

    def _run_traffic(self) -> float:
        """Send everything, kill the worker meanwhile, wait until all is consumed; return the seconds."""
        bootstrap = self._broker.bootstrap_servers
        offsets = Offsets(bootstrap, APP_ID, ADDRESSES, PARTITIONS)
        reader = AcceptedReader(bootstrap, map(wire_names.accepted_topic, ADDRESSES), PARTITIONS)
        publisher = Publisher(bootstrap, self._plan)
        for end in (offsets.close, reader.stop, publisher.stop):
            self._stage.stack.callback(end)
        reader.start()
        self._display.phase("producing")
        publisher.start()
        began = progressed = time.monotonic()
        consumed = 0
        while not (publisher.finished and consumed >= self._plan.messages):
            before, consumed = consumed, offsets.committed()
            self._display.update(publisher.handed_over, consumed, reader.accepted, reader.duplicates)
            if publisher.error is not None:
                raise publisher.error
            now = time.monotonic()
            progressed = now if consumed > before else progressed
            if now - progressed > STALL_LIMIT_S:
                raise self._worker_error(f"consumed nothing for {STALL_LIMIT_S:g} s")
            self._kill_or_greet(consumed, offsets, publisher)
            self._chain.check()
            if self._worker.exit_code is not None:
                raise self._worker_error("ended by itself")
            self._stage.interruption.sleep(_LOOK_EVERY_S)
        seconds = time.monotonic() - began
        self._settle(reader)
        return seconds

    def _settle(self, reader: AcceptedReader) -> None:
        """Let the display's reader catch up, so that the last picture is complete."""
        deadline = time.monotonic() + SETTLE_LIMIT_S
        before = -1
        while before < reader.accepted and time.monotonic() < deadline:
            before = reader.accepted
            self._stage.interruption.sleep(_HEALTH_EVERY_S)
        messages = self._plan.messages  # all consumed: those not accepted were dropped
        self._display.update(messages, messages, reader.accepted, messages - reader.accepted)

    def _kill_or_greet(self, consumed: int, offsets: Offsets, publisher: Publisher) -> None:
        """Kill the worker when it is due. Later, record when its successor is ready."""
        if self._killed is None and consumed >= self._plan.kill_at:
            self._worker.kill()
            self._killed = _Kill(offsets.positions(), time.monotonic())
            self._display.phase(
                f"worker killed with SIGKILL after {total(self._killed.positions):,} messages"
            )
            publisher.release()
            self._worker = self._start_worker()
            self._display.phase("worker restarted: waits until the group removes the dead one")
            self._chain.start()  # starts with the messages accepted so far
        elif self._killed is not None and self._killed.back is None and self._worker.ready:
            self._killed.back = time.monotonic()
            self._display.phase("catching up")

    def _worker_error(self, fault: str) -> WorkerError:
        return WorkerError(f"the worker {fault}: fix what its log names\n{log_of(self._worker)}")

    def _check(self, seconds: float) -> int:
        """Run the check for ``seconds``; it prints its table. Return its exit code."""
        arguments = [
            "app.check",
            "--bootstrap",
            self._broker.bootstrap_servers,
            "--seconds",
            f"{seconds:.1f}",
        ]
        for address in ADDRESSES:
            arguments += ["--topics", f"{address}={wire_names.accepted_topic(address)}"]
        if self._killed is not None:
            positions = self._stage.directory / "killed.json"
            positions.write_text(json.dumps(self._killed.positions), "utf-8")
            arguments += ["--killed", str(positions)]
        return self._stage.run(arguments, "check", CHECK_LIMIT_S)

    def _start_check_of_chain(self) -> Child:
        """Start the chain's check, which runs beside the first one."""
        killed = self._stage.directory / "killed-handler.json"
        killed.write_text(json.dumps(self._chain.killed_at), "utf-8")
        arguments = ["-m", "app.check.chain", "--bootstrap", self._broker.bootstrap_servers]
        log = self._stage.directory / "check-of-chain.log"
        return self._stage.start([*arguments, "--killed", str(killed)], log)

    def _result_of_chain(self, check: Child) -> int:
        """Print the result of the chain's check; return its exit code."""
        code = ended(check, "check of the chain", CHECK_LIMIT_S, self._stage.interruption.check)
        self._display.say((self._stage.directory / "check-of-chain.log").read_text("utf-8").rstrip("\n"))
        if code == 1:
            self._display.say(f"the last lines of the logs of its handlers:\n{self._chain.logs}")
        return code

    def _reconcile(self) -> int:
        """Run the reconciliation run on this traffic; return 0 if it is clean, else 1 or 2."""
        arguments = ["app", "reconcile", "--config", str(self._config), "--out", str(reports_folder())]
        code = self._stage.run(arguments, "reconciliation run", RECONCILE_LIMIT_S)
        return 2 if code == 2 else int(code != 0)

    def _show_outage(self, seconds: float) -> None:
        if self._killed is None or self._killed.back is None:
            return
        outage = self._killed.back - self._killed.at
        self._display.say(
            f"Killed after {total(self._killed.positions):,} messages, ready again {outage:.1f} s later; all took "
            f"{seconds:.1f} s. Without that outage: {self._plan.messages / (seconds - outage):,.0f} messages/s."
        )


def reports_folder() -> Path:
    """Return a new folder for the reconciliation run's report, which outlasts the demo's folder."""
    name = f"report-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}"
    folder = Path.cwd() / REPORTS / name
    try:
        folder.mkdir(parents=True)
    except OSError:  # the current folder is not writable
        folder = Path(tempfile.mkdtemp(prefix=f"ringfence-{name}-"))
    return folder


def configuration(bootstrap: str, directory: Path, plan: Plan, web_port: int) -> str:
    """Return the TOML of the demo's worker. Its rings hold every ID, so the promise covers all resends."""
    head = f"""\
[kafka]
bootstrap_servers = {json.dumps(bootstrap)}
[app]
id = "{APP_ID}"
data_dir = {json.dumps(str(directory / "state"))}
instance = "worker"
session_timeout = {SESSION_TIMEOUT_S}
web_port = {web_port}
[address_defaults]
partitions = {PARTITIONS}
id_cache_size = {plan.messages}
[reconcile]
state_dir = {json.dumps(str(directory / "reconcile"))}
"""
    addresses = "".join(
        f'[[addresses]]\nname = "{address}"\n{"lanes = 1" if address == ONE_RING else ""}\n'
        for address in (*CHAINED, *ADDRESSES)
    )
    return f"{head}{addresses}transaction_addresses = {json.dumps(PLAIN)}\n"  # key of the last address
