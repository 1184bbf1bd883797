"""Invariants of a settled world of consumers, checked on handlers' runs and on every progress record that was ever committed (README.md)."""

import math
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from tests.simulator.consumers.evidence import Evidence, Finished, finished, letters_of, nothing
from tests.simulator.consumers.handlers import HANDLED, IN_VAIN, Run
from tests.simulator.consumers.handovers import takeovers
from tests.simulator.consumers.world import ConsumerWorld
from tests.simulator.gap_log import in_vain
from tests.simulator.names import ACCEPTED
from tests.simulator.schedules import Kind
from tests.simulator.sends.check import first_here, sends, untold
from tests.simulator.sends.handlers import SendingHandling

FLOWING: Final = frozenset({"ok", "release"})
"""Outcomes of messages that never need a dead letter."""
ENDS_S: Final = 4.5
"""Seconds in which a holder must write, learn from the answer who holds its lease, and end its runs."""


def faults(world: ConsumerWorld) -> list[str]:
    found = [said for process in world.processes for said in process.rights.violations] + world.held_up
    found += [*([] if world.former else world.cluster.went_back), *_leaked(world)]
    letters = letters_of(world)
    found += sends(world, letters) if world.plan.sends else ()
    for partition in range(world.plan.partitions):
        found += takeovers(world, partition)
        inputs = world.inputs(partition)
        eaten = set().union(*(input_.eaten for input_ in inputs))
        for process in world.processes:
            found += in_vain(process.gaps, ACCEPTED, partition, eaten)
        for input_ in inputs:
            of = Evidence(world, partition, input_, letters)
            found += _faults(of)
            if isinstance(world.handling, SendingHandling):
                found += [*first_here(of), *untold(of, world.handling.told)]
            found += _end(of) if input_ is inputs[-1] else ()
    return found


def _faults(of: Evidence) -> Iterable[str]:
    yield from _records(of)
    yield from _handled(of)
    yield from _groups(of)
    yield from _mistaken(of)
    yield from _dead_letters(of)
    yield from _outlasting(of)
    yield from _again(of)


def _leaked(world: ConsumerWorld) -> Iterable[str]:
    for process in world.processes:
        held = {} if process.consumer is None else process.consumer.partitions
        if len(process.producers) > len(held):
            yield f"LEAKED: {process.name} holds {len(held)} partitions with {len(process.producers)} producers"


def held_up(world: ConsumerWorld, partition: int) -> list[str]:
    """Report unfinished messages of groups that need no dead letters, while only dead letters are refused."""
    messages, written = world.messages(partition), world.committed(partition)
    done = finished(written[-1]) if written else nothing
    waiting = {message.group for message in messages.values() if message.task not in FLOWING}
    held = [
        offset for offset, message in messages.items() if message.group not in waiting and not done(offset)
    ]
    return [f"HELD-UP {ACCEPTED}/{partition}: {held} while dead letters are refused"] if held else []


def _outlasting(of: Evidence) -> Iterable[str]:
    """Check that runs under a lost lease end soon after the holder can know it, and under an unsound lease within the time to drain."""
    if not of.world.plan.heard:
        return
    awake = {process.name: process for process in of.world.processes}
    for run in of.runs:
        process, task = awake[run.process], of.messages[run.offset].task
        if run.end is None or task == "stubborn":
            continue
        taken_at = [item.at for token, item in of.first.items() if token > run.token]
        ends = [max(*taken_at, process.woke_at)] if taken_at else []
        ends += [
            max(at, process.woke_at) + of.world.plan.drain_timeout
            for number, at in process.learned
            if number == of.partition and run.begin < at < run.end
        ]
        if ends and run.end > min(ends) + ENDS_S:
            yield f"OUTLASTING {of.name}: {run}, to be ended at {min(ends):.4f}"


def _end(of: Evidence) -> Iterable[str]:
    committed = of.world.cluster.committed(ACCEPTED, of.partition)
    if not of.written:
        yield f"LOST {of.name}: nobody has written its progress"
        return
    done, progress = of.finished[-1], of.written[-1].progress
    missing = [offset for offset in of.messages if not done(offset)]
    if missing:
        yield f"LOST {of.name}: {missing} are not finished by {progress}"
    if committed != progress.next:
        yield f"{of.name}: the group has committed {committed}, the last record says {progress.next}"


def _records(of: Evidence) -> Iterable[str]:
    """Check that records never go back, and agree with the runs of handlers."""
    done_by = [set(filter(done, of.messages)) for done in of.finished]
    for number, (before, after) in enumerate(pairwise(of.written)):
        forgotten = sorted(done_by[number] - done_by[number + 1])
        if forgotten or after.progress.next < before.progress.next:
            yield f"FORGOTTEN {of.name}: {forgotten} were finished: {after.progress} follows {before.progress}"
    ended: dict[int, float] = {}
    for run in of.runs:
        if run.outcome == HANDLED and run.end is not None:
            ended[run.offset] = min(run.end, ended.get(run.offset, run.end))
    for item, done, offsets in zip(of.written, of.finished, done_by, strict=True):
        for offset in sorted(offsets):
            letters = of.letters.get(of.messages[offset].number, ())
            well = ended.get(offset, math.inf) <= item.made_at or any(
                letter.transaction <= item.part.number for letter in letters
            )
            if not well and offset not in of.trimmed and not of.gone(offset):
                yield f"UNHANDLED {of.name}: {offset} is finished by {item.progress}, made at {item.made_at:.4f}"
        for run in of.by_token[item.progress.token]:
            if (
                run.outcome == HANDLED
                and run.end is not None
                and run.end < item.made_at
                and not done(run.offset)
            ):
                yield f"FORGOTTEN {of.name}: {run} is missing in {item.progress}, made at {item.made_at:.4f}"


def _handled(of: Evidence) -> Iterable[str]:
    """Check that nothing begins that a record forbids: a finished message, or one of another topic than the lease."""
    for run in of.stale:
        yield f"STALE {of.name}: {run} is of {of.of.topic_id}, its lease is not"
    following = sorted(of.first)
    for run in of.runs:
        earlier = [of.last[token] for token in following if token < run.token]
        if earlier and of.finished[earlier[-1]](run.offset):
            yield f"REDONE {of.name}: {run}, finished by {of.written[earlier[-1]].progress}"
        if run.token not in of.first or run.begin < of.first[run.token].at:
            yield f"UNFENCED {of.name}: {run} began before its lease was written"
    for token, place in of.last.items():
        released = of.written[place]
        if not released.progress.released:
            continue
        for run in of.by_token[token]:
            if run.end is None or run.end > released.made_at:
                yield f"OVERLAPPED {of.name}: {run} was released at {released.made_at:.4f}"


def _groups(of: Evidence) -> Iterable[str]:
    """Check that each holder handles the messages of a group in order, one at a time, each to its end."""
    for token, runs in of.by_token.items():
        earlier = [of.last[number] for number in of.last if number < token]
        before: Finished = of.finished[max(earlier)] if earlier else nothing
        groups: dict[bytes, list[Run]] = defaultdict(list)
        done: set[int] = set()
        for run in runs:
            if run.offset in done:
                yield f"REPEATED {of.name}: {run}"
            group = groups[run.group] if run.group is not None else []
            beside = {item.offset for item in group if item.batch is not None and item.batch is run.batch}
            if group and not beside and (group[-1].end is None or group[-1].end > run.begin):
                yield f"OVERLAPPED {of.name}: {run} begins before the end of {group[-1]}"
            skipped = [
                offset for offset, message in of.messages.items()
                if offset < run.offset and message.group == run.group is not None and not before(offset)
                and not any(run.offset == offset and run.outcome == HANDLED for run in group)
                and not any(letter.at < run.begin for letter in of.letters.get(message.number, ()))
                and offset not in of.trimmed and offset not in beside and not of.gone(offset)
            ]  # fmt: skip
            if skipped:
                yield f"REORDERED {of.name}: {run} before {skipped} of its group"
            group.append(run)
            if run.outcome == HANDLED:
                done.add(run.offset)


def _again(of: Evidence) -> Iterable[str]:
    """Report repeated work of a second holder, if the first one neither died nor was away as long as a lease lasts."""
    if not of.world.plan.lasting:
        return
    ended: dict[int, Run] = {}
    for run in of.runs:
        before = ended.get(run.offset)
        if before is not None and before.token != run.token:
            yield f"AGAIN {of.name}: {run}, and it had ended well: {before}"
        if run.outcome == HANDLED and run.task != "stubborn":
            ended.setdefault(run.offset, run)


def _mistaken(of: Evidence) -> Iterable[str]:
    """Check that messages that were taken for the former topic's still come in the order of their groups."""
    groups: dict[tuple[int, bytes | None], Run] = {}
    for run in of.early:
        former = groups.get((run.token, run.group)) if run.group is not None else None
        groups[run.token, run.group] = run
        if former is None:
            continue
        if former.end is None or former.end > run.begin:
            yield f"OVERLAPPED {of.name}: {run} begins before the end of {former}"
        if run.offset < former.offset:
            yield f"REORDERED {of.name}: {run} after {former}"


def _dead_letters(of: Evidence) -> Iterable[str]:
    flowing = frozenset[str]() if of.world.plan.sends_fail else FLOWING
    for offset, message in of.messages.items():
        count = len(of.letters.get(message.number, ()))
        if count > 1:
            yield f"DOUBLED {of.name}: {count} dead letters of {offset}"
        if of.of.until < math.inf:
            continue  # attempts continue until the deletion is noticed, and are not followed here
        handled = any(run.offset == offset and run.outcome == HANDLED for run in of.runs)
        died = _died(of, offset)
        if count and message.task in flowing and died < of.world.plan.max_attempts:
            told = "was handled" if handled else "was not handled"
            yield f"GIVEN-UP {of.name}: {offset} {told}, and has a dead letter after {died} attempts at most that nobody acknowledged"
        elif count and message.task in flowing and _killers_alone(of):
            yield f"GIVEN-UP {of.name}: {offset} has a dead letter for what another one does"
    if of.of.until < math.inf:
        return
    unbegun = [
        offset for offset, message in of.messages.items()
        if message.task in flowing and of.letters.get(message.number)
        and not any(run.offset == offset for run in of.runs)
    ]  # fmt: skip
    if len(unbegun) > of.world.plan.concurrency * max(1, of.world.plan.batch) * len(of.last):
        yield f"GIVEN-UP {of.name}: {unbegun} have dead letters, and were never begun"


def _killers_alone(of: Evidence) -> bool:
    """Return whether processes die of one message only, and late enough to identify it. Beside two, nobody can identify an innocent one."""
    plan = of.world.plan
    deadly = [task for happening in plan.happenings for task in happening.messages if task.outcome == "kill"]
    sends = all(happening.kind is Kind.SEND for happening in plan.happenings)
    return plan.max_attempts > 1 and sends and len(deadly) == 1


def _died(of: Evidence, offset: int) -> int:
    """Count the attempts at a message whose end nobody knows; each holder may have died before the one that it wrote began."""
    count = known = 0
    for token in of.last:
        own = [run for run in of.by_token[token] if run.offset == offset and run.outcome != IN_VAIN]
        count += sum(run.outcome != HANDLED or not _recorded(of, token, offset) for run in own)
        said = [item.progress.attempts.get(offset, 0) for item in of.written if item.progress.token == token]
        count += max(said) > known + len(own)
        known = said[-1]
    return count


def _recorded(of: Evidence, token: int, offset: int) -> bool:
    own = zip(of.written, of.finished, strict=True)
    return any(done(offset) for item, done in own if item.progress.token == token)
