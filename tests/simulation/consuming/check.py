"""What must hold of a world of consumers that has settled: by what handlers did, and by every progress record that was ever committed.

LOST, REPEATED, REORDERED, OVERLAPPED, REDONE, UNFENCED and EARLY are what :mod:`tests.support.group_checker` calls so. Here the cluster's
own log says who held what and what was written when, so that nothing has to be excused: a repetition is one that a record forbids.
UNHANDLED: a record says that a message is finished, and no handler finished it, nor is there a dead letter of it. FORGOTTEN: what one record
says is finished, or a handler had finished when it was made, is missing in it. SILENT: a lease ran out although its
holder was there and could write. UNCONFIRMED: see :mod:`tests.simulation.rights`.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from tests.simulation.consuming.handling import HANDLED, Run
from tests.simulation.consuming.world import ConsumerWorld, Written
from tests.simulation.names import ACCEPTED
from tests.simulation.saying import in_vain
from tests.simulation.schedules import Kind

ENDS_S: Final = 4.5
"""How long a holder may take to write, to learn from that whose its lease is, and to end what runs."""
FLOWING: Final = frozenset({"ok", "release"})
"""What comes of messages that no dead letter is ever due for."""
Finished = Callable[[int], bool]


def faults(world: ConsumerWorld) -> list[str]:
    """A line each; none if all is well."""
    found = [said for each in world.processes for said in each.rights.violations] + world.held_up
    found += [*world.cluster.went_back, *_leaked(world)]
    letters = _letters(world)
    for partition in range(world.plan.partitions):
        written = world.committed(partition)
        runs = [each for each in world.handling.runs if each.partition == partition]
        found += _Partition(world, partition, written, runs, letters).faults()
    return found


def _leaked(world: ConsumerWorld) -> Iterable[str]:
    """Producers are as many as there are partitions that somebody holds."""
    for process in world.processes:
        held = {} if process.consumer is None else process.consumer.partitions
        if len(process.producers) > len(held):
            yield f"LEAKED: {process.name} holds {len(held)} partitions with {len(process.producers)} producers"


def held_up(world: ConsumerWorld, partition: int) -> list[str]:
    """Of groups that have nothing to do with dead letters, what is not finished although those alone are refused."""
    messages, written = world.messages(partition), world.committed(partition)
    done = _finished(written[-1]) if written else _nothing
    waiting = {each.group for each in messages.values() if each.task not in FLOWING}
    held = [offset for offset, each in messages.items() if each.group not in waiting and not done(offset)]
    return [f"HELD-UP {ACCEPTED}/{partition}: {held} while dead letters are refused"] if held else []


class Letter(NamedTuple):
    """A dead letter."""

    transaction: int
    """In which it was written, counted; of one transactional ID all of a message."""
    at: float


def _letters(world: ConsumerWorld) -> dict[bytes, list[Letter]]:
    """By the number of their message."""
    found: dict[bytes, list[Letter]] = defaultdict(list)
    for log in world.letters:
        for each in log.committed():
            if each.part is not None:
                letter = Letter(each.part.number, log.times[each.offset])
                found[dict(each.headers)["t"] or b""].append(letter)
    return found


class _Partition:
    """One, and all that happened to it."""

    def __init__(
        self,
        world: ConsumerWorld,
        partition: int,
        written: Sequence[Written],
        runs: Sequence[Run],
        letters: dict[bytes, list[Letter]],
    ) -> None:
        self.world = world
        self.partition = partition
        self.name = f"{ACCEPTED}/{partition}"
        self.messages = world.messages(partition)
        self.written = written
        self.finished = [_finished(each) for each in written]
        self.runs = runs
        self.letters = letters
        self.by_token: dict[int, list[Run]] = defaultdict(list)
        for each in runs:
            self.by_token[each.token].append(each)
        self.first: dict[int, Written] = {}
        self.last: dict[int, int] = {}
        """By token: its first record, and the place of its last."""
        for number, record in enumerate(written):
            self.first.setdefault(record.progress.token, record)
            self.last[record.progress.token] = number

    def faults(self) -> Iterable[str]:
        yield from self._end()
        yield from self._records()
        yield from self._takeovers()
        yield from self._handled()
        yield from self._groups()
        yield from self._dead_letters()
        yield from self._outlasting()
        for process in self.world.processes:
            yield from in_vain(process.gaps, ACCEPTED, self.partition, self.world.eaten[self.partition])

    def _gone(self, offset: int) -> bool:
        """Whether retention has deleted it before it was finished, and somebody has said so."""
        return offset in self.world.eaten[self.partition] and any(
            each.names(ACCEPTED, self.partition, offset)
            for process in self.world.processes
            for each in process.gaps
        )

    def _outlasting(self) -> Iterable[str]:
        """What runs of a lease that is another one's ends soon after its holder can know that; of one that is not sound, in the time to drain."""
        if not self.world.plan.heard:
            return
        awake = {each.name: each for each in self.world.processes}
        for run in self.runs:
            process, task = awake[run.process], self.messages[run.offset].task
            if run.end is None or task == "stubborn":
                continue
            taken_at = [each.at for token, each in self.first.items() if token > run.token]
            ends = [max(*taken_at, process.woke_at)] if taken_at else []
            ends += [
                max(at, process.woke_at) + self.world.plan.drain_timeout
                for number, at in process.learned
                if number == self.partition and run.begin < at < run.end
            ]
            if ends and run.end > min(ends) + ENDS_S:
                yield f"OUTLASTING {self.name}: {run}, to be ended at {min(ends):.4f}"

    def _end(self) -> Iterable[str]:
        committed = self.world.cluster.committed(ACCEPTED, int(self.name.rpartition("/")[2]))
        if not self.written:
            yield f"LOST {self.name}: nobody has written its progress"
            return
        done, progress = self.finished[-1], self.written[-1].progress
        missing = [offset for offset in self.messages if not done(offset)]
        if missing:
            yield f"LOST {self.name}: {missing} are not finished by {progress}"
        if committed != progress.next:
            yield f"{self.name}: the group has committed {committed}, the last record says {progress.next}"

    def _records(self) -> Iterable[str]:
        """They never go back, and say what handlers did."""
        for number, (before, after) in enumerate(pairwise(self.written)):
            forgotten = [
                offset for offset in self.messages
                if self.finished[number](offset) and not self.finished[number + 1](offset)
            ]  # fmt: skip
            if forgotten or after.progress.next < before.progress.next:
                yield f"FORGOTTEN {self.name}: {forgotten} were finished: {after.progress} follows {before.progress}"
        ended: dict[int, float] = {}
        for run in self.runs:
            if run.outcome == HANDLED and run.end is not None:
                ended[run.offset] = min(run.end, ended.get(run.offset, run.end))
        for each, done in zip(self.written, self.finished, strict=True):
            for offset, message in self.messages.items():
                well = ended.get(offset, math.inf) <= each.made_at or any(
                    letter.transaction <= each.part.number for letter in self.letters.get(message.number, ())
                )
                if done(offset) and not well and not self._gone(offset):
                    yield f"UNHANDLED {self.name}: {offset} is finished by {each.progress}, made at {each.made_at:.4f}"
            for run in self.by_token[each.progress.token]:
                if (
                    run.outcome == HANDLED
                    and run.end is not None
                    and run.end < each.made_at
                    and not done(run.offset)
                ):
                    yield f"FORGOTTEN {self.name}: {run} is missing in {each.progress}, made at {each.made_at:.4f}"

    def _takeovers(self) -> Iterable[str]:
        """Tokens are one holder's each and rise; none was taken before its time."""
        holders: dict[int, str] = {}
        for before, after in pairwise(self.written):
            one, other = before.progress, after.progress
            if holders.setdefault(other.token, other.holder) != other.holder or other.token < one.token:
                yield f"UNFENCED {self.name}: {other} follows {one}"
            if one.holder == other.holder:
                continue
            if other.token <= one.token:
                yield f"UNFENCED {self.name}: the token of {other} is not above that of {one}"
            limit = self.world.plan.lease_timeout if one.running else self.world.plan.lease_idle
            taken = not one.released and before.owner != after.owner
            if (
                taken
                and self.world.plan.calm
                and not self._outlived(one.token)
                and not self._killed(before, after)
            ):
                yield f"SILENT {self.name}: {one} was taken at {after.at:.4f}, and its holder was at work"
            if taken and after.at < before.at + limit:
                yield f"EARLY {self.name}: at {after.at:.4f} {other} has taken what {one} wrote at {before.at:.4f}"

    def _killed(self, before: Written, after: Written) -> bool:
        """Whether a message has ended the holder of a lease before it was taken."""
        holder = next(each for each in self.world.processes if each.name == before.owner)
        return any(before.made_at <= at <= after.at for at in holder.killed_at)

    def _outlived(self, token: int) -> bool:
        """Whether a run of this holder did not end when it was to."""
        return any("stubborn" in self.messages[each.offset].task for each in self.by_token[token])

    def _handled(self) -> Iterable[str]:
        """What a record forbids: nothing is begun that is finished, nor under a token that another has followed."""
        following = sorted(self.first)
        for run in self.runs:
            earlier = [self.last[token] for token in following if token < run.token]
            if earlier and self.finished[earlier[-1]](run.offset):
                yield f"REDONE {self.name}: {run}, finished by {self.written[earlier[-1]].progress}"
            later = next((self.first[token] for token in following if token > run.token), None)
            if later is not None and run.begin > later.at:
                yield f"UNFENCED {self.name}: {run}, and {later.progress} was written at {later.at:.4f}"
            if run.token not in self.first or run.begin < self.first[run.token].at:
                yield f"UNFENCED {self.name}: {run} began before its lease was written"
        for token, place in self.last.items():
            released = self.written[place]
            if not released.progress.released:
                continue
            for run in self.by_token[token]:
                if run.end is None or run.end > released.made_at:
                    yield f"OVERLAPPED {self.name}: {run} was released at {released.made_at:.4f}"

    def _groups(self) -> Iterable[str]:
        """Of each holder: a group's messages in order, one at a time, each to its end before the next."""
        for token, runs in self.by_token.items():
            earlier = [self.last[each] for each in self.last if each < token]
            before: Finished = self.finished[max(earlier)] if earlier else _nothing
            groups: dict[bytes, list[Run]] = defaultdict(list)
            done: set[int] = set()
            for run in runs:
                if run.offset in done:
                    yield f"REPEATED {self.name}: {run}"
                group = groups[run.group] if run.group is not None else []
                if group and (group[-1].end is None or group[-1].end > run.begin):
                    yield f"OVERLAPPED {self.name}: {run} begins before the end of {group[-1]}"
                skipped = [
                    offset for offset, message in self.messages.items()
                    if offset < run.offset and message.group == run.group is not None and not before(offset)
                    and not any(each.offset == offset and each.outcome == HANDLED for each in group)
                    and not any(letter.at < run.begin for letter in self.letters.get(message.number, ()))
                    and not self._gone(offset)
                ]  # fmt: skip
                if skipped:
                    yield f"REORDERED {self.name}: {run} before {skipped} of its group"
                group.append(run)
                if run.outcome == HANDLED:
                    done.add(run.offset)

    def _dead_letters(self) -> Iterable[str]:
        for offset, message in self.messages.items():
            count = len(self.letters.get(message.number, ()))
            if count > 1:
                yield f"DOUBLED {self.name}: {count} dead letters of {offset}"
            handled = any(each.offset == offset and each.outcome == HANDLED for each in self.runs)
            died = self._died(offset)
            if count and message.task in FLOWING and died < self.world.plan.max_attempts:
                told = "was handled" if handled else "was not handled"
                yield f"GIVEN-UP {self.name}: {offset} {told}, and has a dead letter after {died} attempts at most that nobody acknowledged"
            elif count and message.task in FLOWING and self.killers_alone:
                yield f"GIVEN-UP {self.name}: {offset} has a dead letter for what another one does"
        unbegun = [
            offset for offset, message in self.messages.items()
            if message.task in FLOWING and self.letters.get(message.number)
            and not any(each.offset == offset for each in self.runs)
        ]  # fmt: skip
        if len(unbegun) > self.world.plan.concurrency * len(self.last):
            yield f"GIVEN-UP {self.name}: {unbegun} have dead letters, and were never begun"

    @property
    def killers_alone(self) -> bool:
        """Whether processes die, of one message only, and not so easily that there is no time to find out of which.

        Where two messages are deadly, an innocent one's last attempt may be beside the second, which nobody suspects yet.
        """
        plan = self.world.plan
        deadly = [task for each in plan.happenings for task in each.messages if task.outcome == "kill"]
        sends = all(each.kind is Kind.SEND for each in plan.happenings)
        return plan.max_attempts > 1 and sends and len(deadly) == 1

    def _died(self, offset: int) -> int:
        """How many attempts at it did not end, or nobody knows that they did.

        Of each holder there may be one that it had written, and died before it began it.
        """
        count = known = 0
        for token in self.last:
            own = [each for each in self.by_token[token] if each.offset == offset]
            count += sum(each.outcome != HANDLED or not self._recorded(token, offset) for each in own)
            said = [
                each.progress.attempts.get(offset, 0) for each in self.written if each.progress.token == token
            ]
            count += max(said) > known + len(own)
            known = said[-1]
        return count

    def _recorded(self, token: int, offset: int) -> bool:
        own = zip(self.written, self.finished, strict=True)
        return any(done(offset) for each, done in own if each.progress.token == token)


def _finished(written: Written) -> Finished:
    progress = written.progress
    return lambda offset: (
        offset < progress.next or any(begin <= offset < end for begin, end in progress.finished)
    )


def _nothing(_: int) -> bool:
    return False
