"""``ringfence demo --bridge``: two brokers, a bridge that is killed twice, a link that is cut, a producer that fails over."""

import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from app.demo.bridged import traffic
from app.demo.bridged.clusters import ADDRESS, BRIDGE, ORIGIN, PARTITIONS, TARGET, Clusters, Ends, Sender
from app.demo.display import Display
from app.demo.folder import in_folder
from app.demo.judges import CHECK_LIMIT_S, DemoError, ended
from app.demo.processes import Child, Interruption, WorkerProcess
from app.demo.watch import Watch
from app.embedded import ports
from app.embedded.broker import HOST
from ringfence_kafka import wire

MESSAGES: Final = 120_000
LIMIT_S: Final = 90.0
"""For a process to be ready, and for what is expected to happen."""
STOP_LIMIT_S: Final = 30.0
CUT_S: Final = 3.0
ACTS: Final = (0.30, 0.50, traffic.FAIL_OVER)
"""Shares of the traffic: what is sent before the bridge is killed, before the link is cut, before the producer fails over."""
_LOOK_EVERY_S: Final = 0.02
_STATUS: Final = "status of the bridge"


def run(messages: int = MESSAGES, keep: bool = False, seed: int = 1) -> int:
    """Run it and print what came of it.

    Args:
        messages: How many to send.
        keep: Keep the folder with configuration, logs and data. After a failure it is kept anyway.
        seed: Reproduces the traffic.

    Returns:
        The exit code: 0 every message was accepted at the target exactly once, in order, unchanged; 1 not so;
        128 + the signal's number when interrupted.

    Raises:
        RingfenceError: could not run. Nothing is left running.
    """
    everything = traffic.Plan(messages, seed).all()

    def work(directory: Path, interruption: Interruption) -> int:
        with Display(traffic.distinct(everything)) as display, contextlib.ExitStack() as stack:
            return _Demo(everything, directory, display, interruption, stack).run()

    return in_folder("ringfence-demo-bridge-", keep, work)


class _Demo:
    """One run."""

    _bridge: WorkerProcess

    def __init__(
        self,
        everything: list[traffic.Message],
        directory: Path,
        display: Display,
        interruption: Interruption,
        stack: contextlib.ExitStack,
    ) -> None:
        self._everything = everything
        self._directory = directory
        self._display = display
        self._interruption = interruption
        self._stack = stack
        for each in (ORIGIN, TARGET):
            (directory / each).mkdir()
        self._clusters = Clusters(directory, len(everything), stack)
        self._ports = {each: ports.choose(HOST) for each in (ORIGIN, TARGET, BRIDGE)}
        self._configs = {
            each: self._clusters.configuration(each, self._ports[each]) for each in (ORIGIN, TARGET)
        }
        self._bridges = 0
        self._sent = 0

    def run(self) -> int:
        """All phases; returns the exit code."""
        say = self._display.phase
        say("two brokers: berlin, and paris behind a link")
        with self._interruption.immediate():
            self._clusters.start()
        say("topics, a worker on each side, the bridge berlin → paris")
        workers = [self._start_worker(each) for each in (ORIGIN, TARGET)]
        self._start_bridge()
        self._await_ready(*workers, self._bridge)
        self._watch()
        began = time.monotonic()
        self._traffic()
        self._await_all()
        seconds = time.monotonic() - began
        say("check: another program compares what both clusters were sent with what paris accepted")
        self._display.close()
        status = self._child(
            _STATUS, ["-m", "app", "bridge", "status", "--config", str(self._configs[ORIGIN])]
        )
        stopped = [self._stop(each) for each in (self._bridge, *workers)]
        bootstraps = (self._clusters.origin.bootstrap_servers, self._clusters.target.bootstrap_servers)
        code = self._child(
            "check",
            [
                "-m",
                "app.check.bridged",
                "--origin",
                bootstraps[0],
                "--target",
                bootstraps[1],
                "--address",
                ADDRESS,
            ],
        )
        self._display.say(
            f"Killed twice, cut off for {CUT_S:g} s, failed over once: all took {seconds:.1f} s."
        )
        for each, left in zip((BRIDGE, ORIGIN, TARGET), stopped, strict=True):
            if left != 0:
                self._display.say(
                    f"{each} did not stop in order within {STOP_LIMIT_S:g} s of SIGTERM: {left}"
                )
        return max(code, status, *(int(each != 0) for each in stopped))

    # -- before the traffic --------------------------------------------------------------------------------------

    def _start_worker(self, name: str) -> WorkerProcess:
        log = self._directory / name / "topics.log"
        child = Child(["-m", "app", "topics", "create", "--config", str(self._configs[name])], log)
        self._stack.callback(child.kill)
        if child.wait(LIMIT_S, self._interruption.check) != 0:
            raise DemoError(
                f"the topics of {name} were not created: fix what is named here\n{child.log_tail()}"
            )
        worker = WorkerProcess(self._configs[name], self._ports[name], self._directory / name / "worker.log")
        self._stack.callback(worker.kill)
        return worker

    def _start_bridge(self) -> None:
        self._bridges += 1
        log = self._directory / f"bridge-{self._bridges}.log"
        self._bridge = WorkerProcess(self._configs[ORIGIN], self._ports[BRIDGE], log, verb="bridge")
        self._stack.callback(self._bridge.kill)

    def _await_ready(self, *children: WorkerProcess) -> None:
        for each in children:
            self._until(lambda each=each: each.ready, f"{each.log} ready", each)  # type: ignore[misc]

    def _watch(self) -> None:
        target = self._clusters.target.bootstrap_servers
        self._accepted = Watch(target, TARGET, {ADDRESS: wire.accepted_topic(ADDRESS)}, PARTITIONS)
        self._written = Ends(target, ADDRESS, TARGET)
        self._to_forward = Ends(
            self._clusters.origin.bootstrap_servers,
            wire.accepted_topic(ADDRESS),
            wire.bridge_group(ORIGIN, BRIDGE),
        )
        for each in (self._accepted, self._written, self._to_forward):
            self._stack.callback(each.close)

    # -- the traffic ---------------------------------------------------------------------------------------------

    def _traffic(self) -> None:
        """Three acts at the origin, then the producer fails over."""
        say, total = self._display.phase, len(self._everything)
        berlin, paris = (
            Sender(each.bootstrap_servers) for each in (self._clusters.origin, self._clusters.target)
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
            lambda: self._written.written() >= before + total // 50, "the bridge goes on", self._bridge
        )
        self._clusters.link.cut()
        say(f"link cut for {CUT_S:g} s")
        self._send(berlin, self._everything[ends[1] : ends[2]])
        self._interruption.sleep(CUT_S)
        before = self._written.written()
        self._clusters.link.open()
        say("link whole again")
        self._until(lambda: self._written.written() > before, "the bridge goes on", self._bridge)
        self._bridge.kill()
        say(
            f"bridge killed again; the producer fails over to paris and sends its last {traffic.UNSURE:,} once more"
        )
        berlin.flush()
        self._send(paris, traffic.to_target(self._everything))
        paris.flush()
        self._start_bridge()
        say("bridge started again: it brings what paris has already, and what it has not")

    def _send(self, sender: Sender, messages: Iterable[traffic.Message]) -> None:
        for each in messages:
            sender.send(each)
            self._sent += 1
        self._show()

    def _await_all(self) -> None:
        """Until the target has accepted everything, and then until nothing is under way any more."""
        wanted = traffic.distinct(self._everything)
        self._until(lambda: self._accepted.accepted >= wanted, "paris accepts all", self._bridge)
        config = str(self._configs[ORIGIN])
        deadline = time.monotonic() + LIMIT_S
        while True:
            quiet = self._child(
                _STATUS, ["-m", "app", "bridge", "status", "--config", config], self._directory / "status.log"
            )
            forwarded = self._to_forward.committed() >= self._to_forward.written()
            if quiet == 0 and forwarded and self._written.committed() >= self._written.written():
                return
            if time.monotonic() > deadline:
                raise DemoError(
                    f"the bridge does not come to rest\n{(self._directory / 'status.log').read_text()}"
                )

    # -- common --------------------------------------------------------------------------------------------------

    def _until(self, condition: Callable[[], bool], what: str, process: WorkerProcess) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            if process.exit_code is not None or time.monotonic() > deadline:
                raise DemoError(f"waited for this, and it did not come: {what}\n{process.log_tail()}")
            self._show()
            self._interruption.sleep(_LOOK_EVERY_S)

    def _show(self) -> None:
        watch = getattr(self, "_accepted", None)
        if watch is not None:
            self._display.update(self._sent, watch.accepted, watch.accepted, watch.duplicates)

    def _child(self, name: str, arguments: list[str], log: Path | None = None) -> int:
        child = Child(arguments, log)
        self._stack.callback(child.kill)
        return ended(child, name, CHECK_LIMIT_S, self._interruption.check)

    def _stop(self, child: WorkerProcess) -> int | None:
        """Its exit code, below 0 the signal's that ended it; None = it did not end."""
        child.terminate()
        code = child.wait(STOP_LIMIT_S, self._interruption.check)
        child.kill()
        return code
