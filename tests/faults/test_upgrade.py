"""Each release is replaced by this version, and comes back in its place, one process after the other and under load: exact."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from tests.faults.checker import check, counts
from tests.faults.history import History, attributed
from tests.faults.order import apart
from tests.faults.origin import crossed
from tests.faults.system import System
from tests.faults.workloads.catalogue import Workload, bridged, misplaced, transfers
from tests.support import kafka, releases
from tests.support.consumers import ConsumerProcess, noted
from tests.support.worker import ROOT, RingfenceProcess, wait_for

PARTITIONS: Final = 4
RATE: Final = 120
"""Of each producer, at most; fifteen have a fourth of it."""
MORE: Final = 150
"""So many messages are accepted of each address, and handled, between one replacement and the next."""
HANDLER: Final = """
import os

def handle(message):
    line = f"{message.partition} {message.offset} {(message.group or b'').hex()}\\n"
    descriptor = os.open(os.environ["NOTED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)
"""
"""It stands in no tree: each release runs the same."""


class Handled:
    """What the consumers' handlers noted, in the order of their ends."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "noted"
        (folder / "noting.py").write_text(HANDLER)
        self.environment = {"NOTED": str(self.file), "PYTHONPATH": str(folder)}

    def lines(self) -> list[tuple[int, int, str]]:
        """Partition, offset, group."""
        return [
            (int(partition), int(offset), group) for partition, offset, group in map(_split, noted(self.file))
        ]

    def faults(self, due: set[tuple[int, int]]) -> list[str]:
        """What of the accepted records was handled never or again, or before an earlier one of its group."""
        lines = self.lines()
        places = [(partition, offset) for partition, offset, _ in lines]
        found = []
        if again := len(places) - len(set(places)):
            found.append(f"{again} handled again")
        if lost := due - set(places):
            found.append(f"{len(lost)} never handled, such as {min(lost)}")
        if made_up := set(places) - due:
            found.append(f"{len(made_up)} handled that are not there, such as {min(made_up)}")
        order: dict[tuple[int, str], list[int]] = defaultdict(list)
        for partition, offset, group in lines:
            if group:
                order[partition, group].append(offset)
        if reordered := sum(each != sorted(each) for each in order.values()):
            found.append(f"{reordered} groups out of order")
        return found


def _split(line: str) -> list[str]:
    return line.split(" ")


def _loads(seed: int) -> list[Workload]:
    """Forwarding; what a bridge brings; transactions with parts for all."""
    rng = random.Random(seed)
    plain = [misplaced("misplaced", rng), bridged("bridged", rng)]
    loads = [*plain, transfers("transfers", rng, tuple(each.name for each in plain))]
    return [
        replace(each, plans=[replace(plan, rate=min(plan.rate, RATE)) for plan in each.plans])
        for each in loads
    ]


def _replaced(process: RingfenceProcess, tree: Path) -> None:
    """As its operator does it: SIGTERM, its end in order, the other code, and it is healthy."""
    assert process.stop() == 0, process.log()
    process.tree = tree
    process.start()
    process.wait_ready()
    assert Path(f"/proc/{process.pid}/cwd").readlink() == tree


def _progressed(system: System, handled: Handled) -> Callable[[], bool]:
    """Whether more has come through everywhere since now."""

    def done() -> Iterator[int]:
        for each in system.workloads:
            yield sum(kafka.end_offsets(system.bootstrap, f"{each.name}.accepted", PARTITIONS))
        yield len(handled.lines())

    goal = [each + MORE for each in done()]
    return lambda: all(now >= then for now, then in zip(done(), goal, strict=True))


def _judged(system: System, histories: Sequence[History]) -> list[str]:
    faults = [str(each) for each in apart(histories)]
    for load, history in zip(system.workloads, histories, strict=True):
        found = {name: count for name, count in counts(check(history)).items() if count}
        faults += [f"{load.name}: {found}"] if found else []
        assert len(history.accepted) > MORE
        if load.user_ids and system.origin is not None:
            faults += map(str, crossed(system.source, history, ids_ignored=load.user_ids == "ignore"))
    return faults


@pytest.mark.long
@pytest.mark.parametrize("version", releases.VERSIONS)
def test_rolling_upgrade_and_back(version: str, tmp_path: Path) -> None:
    """Workers, bridges and consumers, in the order that the docs name; each step is followed by traffic through all lanes."""
    release = releases.tree(version, tmp_path / "release")
    handled = Handled(tmp_path)
    with System(tmp_path, _loads(seed=5), partitions=PARTITIONS, workers=2, tree=release) as system:
        consumers = [
            ConsumerProcess(
                system.config, f"c{each}", "misplaced", "billing", handler="noting:handle", environment=handled.environment
            )
            for each in range(2)
        ]  # fmt: skip
        everything: list[RingfenceProcess] = [*system.processes, *consumers]
        try:
            for each in consumers:
                each.tree = release
                each.start()
            system.start()
            for tree in (ROOT, release):
                for process in everything:
                    wait_for(_progressed(system, handled), system.report)
                    _replaced(process, tree)
            wait_for(_progressed(system, handled), system.report)
            system.stop_producers()
            histories = system.drain()
            accepted = kafka.read_all(system.bootstrap, "misplaced.accepted", PARTITIONS)
            due = {(each.partition, each.offset) for each in accepted}
            wait_for(lambda: len(handled.lines()) >= len(due), lambda: str(handled.faults(due)))
            ended = [process.stop() for process in everything]
        finally:
            for each in consumers:
                each.destroy()

    assert handled.faults(due) == []
    assert _judged(system, attributed(histories)) == []
    assert set(ended) == {0}


def test_what_handlers_did_is_judged(tmp_path: Path) -> None:
    """What is handled never, again, out of order, or is not there, is named."""
    handled = Handled(tmp_path)
    due = {(0, 1), (0, 2), (0, 3)}
    for lines, fault in [
        ("0 1 aa\n0 2 aa\n0 3 bb\n", []),
        ("0 2 aa\n0 3 bb\n0 1 aa\n", ["1 groups out of order"]),
        ("0 1 \n0 3 \n0 2 \n0 2 \n", ["1 handled again"]),
        ("0 1 aa\n0 3 bb\n", ["1 never handled, such as (0, 2)"]),
        ("0 1 aa\n0 2 aa\n0 3 bb\n1 9 cc\n", ["1 handled that are not there, such as (1, 9)"]),
    ]:
        handled.file.write_text(lines)

        assert handled.faults(due) == fault
