"""``ringfence demo --bridge``: two brokers, a bridge killed twice, a cut link, a producer that fails over."""

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from app.demo.bridge import traffic
from app.demo.bridge.link import Link
from app.demo.processes import WorkerProcess
from app.demo.publish import Sender
from app.demo.stage import CHECK_LIMIT_S, READY_LIMIT_S, STOP_LIMIT_S, DemoError, Stage, log_of, play
from app.demo.watch import AcceptedReader, Offsets
from app.embedded import ports
from app.embedded.broker import EmbeddedBroker
from app.embedded.broker_process import HOST
from app.embedded.server_files import Listener, listener_properties
from ringfence_kafka.protocol import wire_names

MESSAGES: Final = 120_000
CUT_S: Final = 3.0
ACTS: Final = (0.30, 0.50, traffic.FAIL_OVER)
"""Shares of the traffic before the bridge's kill, the link's cut, and the producer's failover."""
_LOOK_EVERY_S: Final = 0.02
ADDRESS: Final = "orders"
BRIDGE: Final = "to-paris"
PARTITIONS: Final = 4
ORIGIN: Final = "berlin"
TARGET: Final = "paris"
LINK: Final = "LINK"


class Clusters:
    """Two brokers that are not started yet, and a link to the target that only the bridge uses."""

    def __init__(self, directory: Path, messages: int) -> None:
        plain, controller, inner, outer = (ports.choose(HOST) for _ in range(4))
        properties = listener_properties(
            HOST, plain, controller, {LINK: Listener(inner, advertised_port=outer)}
        )
        self.origin: Final = EmbeddedBroker(directory / ORIGIN / "broker")
        self.target: Final = EmbeddedBroker(directory / TARGET / "broker", plain, properties=properties)
        self.link: Final = Link(inner, outer)
        self._directory = directory
        self._messages = messages

    def configuration(self, name: str, web_port: int) -> Path:
        """Write the configuration of one side's worker, at the origin with the bridge; return the file."""
        broker = self.origin if name == ORIGIN else self.target
        text = f"""\
[kafka]
bootstrap_servers = {json.dumps(broker.bootstrap_servers)}
[app]
id = "{name}"
data_dir = {json.dumps(str(self._directory / name / "state"))}
instance = "worker"
web_port = {web_port}
[[addresses]]
name = "{ADDRESS}"
partitions = {PARTITIONS}
id_cache_size = {2 * self._messages}
"""
        if name == ORIGIN:
            text += f"""
[[bridges]]
name = "{BRIDGE}"
source_topic = "{ADDRESS}.accepted"
target_address = "{ADDRESS}"
[bridges.target]
bootstrap_servers = {json.dumps(self.link.bootstrap)}
"""
        path = self._directory / name / "ringfence.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
        return path


def run_demo(messages: int = MESSAGES, keep: bool = False, seed: int = 1) -> int:
    """Run the demo; arguments and exit code are those of :func:`app.demo.run.run_demo`."""
    everything = traffic.planned(messages, seed)
    total = traffic.distinct(everything)
    return play("ringfence-demo-bridge-", keep, total, lambda stage: _Demo(everything, stage).run())


class _Demo:
    """One run of the demo on a stage."""

    _bridge: WorkerProcess
    _accepted: AcceptedReader

    def __init__(self, everything: list[traffic.Message], stage: Stage) -> None:
        self._everything = everything
        self._stage = stage
        self._directory = stage.directory
        self._display = stage.display
        self._clusters = Clusters(stage.directory, len(everything))
        self._ports = {name: ports.choose(HOST) for name in (ORIGIN, TARGET, BRIDGE)}
        self._configs = {
            name: self._clusters.configuration(name, self._ports[name]) for name in (ORIGIN, TARGET)
        }
        self._bridges = 0
        self._sent = 0

    def run(self) -> int:
        """Run all phases, and return the exit code."""
        say = self._display.phase
        say("two brokers: berlin, and paris behind a link")
        for broker in (self._clusters.origin, self._clusters.target):
            self._stage.start_broker(broker)
        self._stage.stack.enter_context(self._clusters.link)
        say("topics, a worker on each side, the bridge berlin → paris")
        workers = [self._start_worker(name) for name in (ORIGIN, TARGET)]
        self._start_bridge()
        for worker in (*workers, self._bridge):
            if not self._stage.becomes_ready(worker):
                raise DemoError(f"a process did not become ready: fix what its log names\n{log_of(worker)}")
        self._watch()
        began = time.monotonic()
        self._traffic()
        self._await_all()
        seconds = time.monotonic() - began
        say(
            "check: another program compares the messages sent to both clusters with those that paris "
            "accepted"
        )
        self._display.close()
        status = self._status()
        stopped = [self._stage.stop(process) for process in (self._bridge, *workers)]
        arguments = ["app.check.bridge", "--origin", self._clusters.origin.bootstrap_servers]
        arguments += ["--target", self._clusters.target.bootstrap_servers, "--address", ADDRESS]
        code = self._stage.run(arguments, "check", CHECK_LIMIT_S)
        self._display.say(
            f"Killed twice, cut off for {CUT_S:g} s, failed over once: all took {seconds:.1f} s."
        )
        for name, left in zip((BRIDGE, ORIGIN, TARGET), stopped, strict=True):
            if left != 0:
                self._display.say(f"{name} did not stop cleanly within {STOP_LIMIT_S:g} s of SIGTERM: {left}")
        return max(code, status, *(int(item != 0) for item in stopped))

    def _start_worker(self, name: str) -> WorkerProcess:
        self._stage.create_topics(self._configs[name])
        log = self._directory / name / "worker.log"
        return self._stage.start_worker(self._configs[name], self._ports[name], log)

    def _start_bridge(self) -> None:
        self._bridges += 1
        log = self._directory / f"bridge-{self._bridges}.log"
        self._bridge = self._stage.start_worker(self._configs[ORIGIN], self._ports[BRIDGE], log, "bridge")

    def _watch(self) -> None:
        origin, target = self._clusters.origin.bootstrap_servers, self._clusters.target.bootstrap_servers
        accepted_topic = wire_names.accepted_topic(ADDRESS)
        self._accepted = AcceptedReader(target, [accepted_topic], PARTITIONS)
        self._accepted.start()
        self._written = Offsets(target, TARGET, [ADDRESS], PARTITIONS)
        group = wire_names.bridge_group(ORIGIN, BRIDGE)
        self._to_forward = Offsets(origin, group, [accepted_topic], PARTITIONS)
        for end in (self._accepted.stop, self._written.close, self._to_forward.close):
            self._stage.stack.callback(end)

    def _traffic(self) -> None:
        """Produce three parts to the origin, then fail over to the target."""
        say, total = self._display.phase, len(self._everything)
        berlin, paris = (
            Sender(broker.bootstrap_servers) for broker in (self._clusters.origin, self._clusters.target)
        )
        ends = [int(share * total) for share in ACTS]
        say("producing to berlin; the bridge is killed while it forwards")
        self._send(berlin, self._everything[: ends[0]])
        self._until(lambda: self._written.written() >= ends[0] // 6, "the bridge forwards", self._bridge)
        self._bridge.kill()
        self._start_bridge()
        say("bridge killed with SIGKILL and started again; then its link is cut")
        self._send(berlin, self._everything[ends[0] : ends[1]])
        before = self._written.written()
        self._until(
            lambda: self._written.written() >= before + total // 50, "the bridge continues", self._bridge
        )
        self._clusters.link.cut()
        say(f"link cut for {CUT_S:g} s")
        self._send(berlin, self._everything[ends[1] : ends[2]])
        self._stage.interruption.sleep(CUT_S)
        before = self._written.written()
        self._clusters.link.open()
        say("link restored")
        self._until(lambda: self._written.written() > before, "the bridge continues", self._bridge)
        self._bridge.kill()
        say(
            f"bridge killed again; the producer fails over to paris and sends its last {traffic.UNSURE:,} once more"
        )
        berlin.flush()
        self._send(paris, traffic.to_target(self._everything))
        paris.flush()
        self._start_bridge()
        say("bridge restarted: it forwards messages that paris has already, and others")

    def _send(self, sender: Sender, messages: Iterable[traffic.Message]) -> None:
        for message in messages:
            sender.send(ADDRESS, message.value, message.group, [("_AMQ_DUPL_ID", message.id)])
            self._sent += 1
        self._show()

    def _await_all(self) -> None:
        """Wait until the target has accepted everything, then until bridge and workers are idle."""
        wanted = traffic.distinct(self._everything)
        self._until(lambda: self._accepted.accepted >= wanted, "paris accepts all", self._bridge)
        log = self._directory / "status.log"
        deadline = time.monotonic() + READY_LIMIT_S
        while True:
            quiet = self._status(log) == 0
            forwarded = self._to_forward.committed() >= self._to_forward.written()
            if quiet and forwarded and self._written.committed() >= self._written.written():
                return
            if time.monotonic() > deadline:
                raise DemoError(f"the bridge does not finish\n{log.read_text()}")

    def _until(self, condition: Callable[[], bool], what: str, process: WorkerProcess) -> None:
        deadline = time.monotonic() + READY_LIMIT_S
        while not condition():
            if process.exit_code is not None or time.monotonic() > deadline:
                raise DemoError(f"this did not happen in time: {what}\n{log_of(process)}")
            self._show()
            self._stage.interruption.sleep(_LOOK_EVERY_S)

    def _show(self) -> None:
        accepted = self._accepted.accepted
        self._display.update(self._sent, accepted, accepted, self._accepted.duplicates)

    def _status(self, log: Path | None = None) -> int:
        arguments = ["app", "bridge", "status", "--config", str(self._configs[ORIGIN])]
        return self._stage.run(arguments, "status of the bridge", CHECK_LIMIT_S, log)
