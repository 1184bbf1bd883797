"""Invariants of dead letters: at most one for a message, and only for messages that deserve it."""

import math
from collections.abc import Iterable
from typing import Final

from tests.simulator.consumers.evidence import Evidence
from tests.simulator.consumers.handlers import HANDLED, IN_VAIN
from tests.simulator.schedules import Kind

FLOWING: Final = frozenset({"ok", "release"})
"""Outcomes of messages that never need a dead letter."""


def dead_letters(of: Evidence) -> Iterable[str]:
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
