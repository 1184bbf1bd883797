"""Findings of a consumer group, its messages, handlers and leases. Pure."""

from collections.abc import Iterator, Sequence
from shlex import quote
from typing import Final

from app.commands.status.causes import PASSES_S, SHOWN_MAX, Problem, merged, named, quota
from app.commands.status.formatting import waiting
from app.commands.status.model import Consumers, Finding, LeftLetters, Share
from ringfence_kafka.groups.foreign_members import WAY_OUT
from ringfence_kafka.page.formats import age
from ringfence_kafka.wording import counted

HANGS_S: Final = 300.0
"""Time on one message after which a handler counts as hanging, in seconds."""


def findings(consumers: Consumers) -> Iterator[Finding]:
    """Yield findings of the group, then of its partitions."""
    where = f"{consumers.consumer_group} at {consumers.address}"
    rebalances = "REBALANC" in consumers.state.upper()
    yield from _letters(consumers, where)
    if consumers.lag and consumers.waiting and not consumers.members and not rebalances:
        yield Finding(
            where,
            f"no consumer runs, and {waiting(consumers.waiting)}, the oldest for {_oldest(consumers)}",
            "start a consumer; a group that is no longer used: ringfence consumers forget "
            f"{quote(consumers.consumer_group)}",
            f"ringfence consume {quote(consumers.address)} --handler MODULE:FUNCTION --consumer-group {quote(consumers.consumer_group)}",
            stands=True,
        )
        return
    for fault in consumers.faults:
        do, command = WAY_OUT if "foreign member" in fault else "", _who(consumers)
        if fault.startswith("nearly every attempt fails"):
            do = "fix what the handler depends on; nothing becomes a dead letter meanwhile"
            command = _groups("show", consumers)
        yield Finding(where, fault, do, command, stands=True)
    if consumers.throttled:
        yield Finding(where, *quota(consumers.throttled))
    if consumers.left_behind:
        what = f"{counted(consumers.left_behind, 'handler')} did not end when cancelled; their groups wait for them"
        do = "fix the handler; this command lets a group continue without it"
        yield Finding(where, what, do, _groups("skip", consumers, "GROUP"), stands=True)
    for silent in dict.fromkeys(consumers.unheard.values()):
        at = ", ".join(web for web, probe_error in consumers.unheard.items() if probe_error == silent)
        what = f"{silent.what}, at {at}, so the state of its handlers is unknown here"
        yield Finding(where, what, silent.do)
    yield from _failing(consumers, where)
    yield from _runs(consumers, where)
    yield from _leases(consumers, where)
    not_held = ((str(share.partition), _not_held(consumers, share), 0) for share in consumers.partitions)
    problems = ((number, problem, waits) for number, problem, waits in not_held if problem is not None)
    yield from merged(f"{where}, partition", problems)


def _oldest(consumers: Consumers) -> str:
    oldest = consumers.oldest
    return "an unknown time" if oldest is None else age(oldest.head_age_seconds)


def _letters(consumers: Consumers, where: str) -> Iterator[Finding]:
    """Yield a finding about open dead letters, and the groups that wait behind them."""
    letters, blocked = consumers.dead_letters, consumers.blocked
    if letters is None and not blocked:
        return
    what = [] if letters is None else [letters.described("dead letter")]
    if blocked:
        names = [share.blocked_group or "a group" for share in consumers.partitions if share.blocked]
        shown = ", ".join(names[:SHOWN_MAX])
        more = f" and {blocked - len(names[:SHOWN_MAX]):,} more" if blocked > len(names[:SHOWN_MAX]) else ""
        those = ("waits, its message has a dead letter", "wait, each behind a message with a dead letter")
        what.append(f"{counted(blocked, 'group')} {those[blocked > 1]}: {shown}{more}")
    do = "fix the cause, then redrive them; `ringfence dlq list` shows them, and `ringfence dlq drop` discards them"
    command = (
        f"ringfence dlq redrive {quote(consumers.address)} --consumer-group {quote(consumers.consumer_group)}"
    )
    if letters is None or (blocked > letters.count and not letters.at_least):
        do = f"{do}; `ringfence groups release` tries a message again whose dead letter is gone"
    if letters is None:
        names = [share.blocked_group for share in consumers.partitions if share.blocked_group]
        command = _groups("release", consumers, quote(names[0]) if names else "GROUP")
    yield Finding(where, "; ".join(what), do, command, stands=True)


def left_letters(left: LeftLetters) -> Finding:
    """Return the finding about dead letters of a consumer group without progress."""
    where = f"{left.consumer_group or 'no consumer group'} at {left.address}"
    do = "their consumer group has no progress: start a consumer of it and redrive them, or drop them"
    group = f" --consumer-group {quote(left.consumer_group)}" if left.consumer_group else ""
    command = f"ringfence dlq list {quote(left.address)}{group}"
    return Finding(where, left.dead_letters.described("dead letter"), do, command, stands=True)


def _failing(consumers: Consumers, where: str) -> Iterator[Finding]:
    """Yield one finding for all groups whose first message fails."""
    failing = [share for share in consumers.partitions if share.failing_seconds is not None and share.lag]
    if not failing:
        return
    longest = max(failing, key=lambda share: share.failing_seconds or 0.0)
    group = "a group" if longest.failing_group is None else f"group {longest.failing_group}"
    others = sum(max(1, share.failing) for share in failing) - 1
    more = f"; {counted(others, 'other group waits', 'other groups wait')} likewise" if others else ""
    do, command = "fix what the handler depends on", ""
    if others:
        do, command = f"{do}; this command shows all groups that wait", _groups("show", consumers)
    elif longest.failing_group is not None:
        do, command = f"{do}, or drop the message", _groups("skip", consumers, quote(longest.failing_group))
    yield Finding(
        _at(where, failing),
        f"{group} waits: its first message has failed for {age(longest.failing_seconds)}, "
        f"{counted(longest.failing_attempts, 'attempt')} so far{more}",
        do,
        command,
        stands=(longest.failing_seconds or 0.0) > PASSES_S,
    )


def _runs(consumers: Consumers, where: str) -> Iterator[Finding]:
    """Yield findings about handlers that run for a long time."""
    running = [share for share in consumers.partitions if share.running and share.lag]
    silent = [
        share
        for share in running
        if (share.head_age_seconds or 0.0) > PASSES_S
        and (share.run_seconds, share.failing_seconds) == (None, None)
        and not share.waits
    ]
    if silent:
        oldest = max(share.head_age_seconds or 0.0 for share in silent)
        what = (
            f"{counted(sum(share.running for share in silent), 'message')} run, and the oldest that is not "
            f"finished waits for {age(oldest)}: a backlog, or a handler that hangs; its consumer does not "
            "report which"
        )
        do = "look at its log, or make its web server reachable from here (app.web_host, --web-port)"
        yield Finding(_at(where, silent), what, do, _who(consumers))
    late = [share for share in running if (share.run_seconds or 0.0) > PASSES_S]
    if not late:
        return
    longest = max(late, key=lambda share: share.run_seconds or 0.0)
    group = "no group" if longest.run_group is None else f"group {longest.run_group}"
    others = len(late) - 1
    more = f"; {counted(others, 'other partition has', 'other partitions have')} one, too" if others else ""
    yield Finding(
        _at(where, late),
        f"a handler runs one message of {group} for {age(longest.run_seconds)}, and does not end{more}",
        "nothing, if that may take so long, else fix the handler, or set --handler-timeout"
        + ("" if longest.run_group is None else "; this command ends the run"),
        "" if longest.run_group is None else _groups("release", consumers, quote(longest.run_group)),
        stands=(longest.run_seconds or 0.0) > HANGS_S,
    )


def _leases(consumers: Consumers, where: str) -> Iterator[Finding]:
    """Yield a finding for each pair of consumers, about partitions not released by the former holder."""
    found: dict[tuple[str, str, bool], list[Share]] = {}
    for share in consumers.partitions:
        if share.waits and share.holder and (share.holder_is_member is False or share.state == "draining"):
            holder = share.holder.rpartition("/")[0] or share.holder
            found.setdefault((share.waits, holder, share.holder_is_member is False), []).append(share)
    for (waits, holder, gone), shares in found.items():
        silent = max(share.silent_seconds or 0.0 for share in shares)
        if gone:
            what = (
                f"{waits} waits for the lease of {holder}, which has left, and last wrote {age(silent)} ago"
            )
            do = "nothing, if that is less than --lease-timeout; else look at the log of the waiting consumer"
            stands = silent > PASSES_S and any(share.lag for share in shares)
            yield Finding(_at(where, shares), what, do, _who(consumers), stands)
        else:
            runs = counted(sum(share.running for share in shares), "message")
            what = f"{waits} waits until {holder} has finished its running messages: {runs}"
            do = "nothing; this command ends a handler that hangs"
            yield Finding(_at(where, shares), what, do, _groups("release", consumers, "GROUP"))


def _not_held(consumers: Consumers, share: Share) -> Problem | None:
    """Return the problem of a partition without a holder."""
    if share.waits and share.holder:
        return None
    if share.reason:
        what = f"it is not open yet: {share.reason}"
    elif consumers.members and share.lag and share.state in {"none", "released"} and not share.waits:
        what = f"it is assigned to no consumer, though {counted(len(consumers.members), 'consumer')} run"
    else:
        return None
    return Problem(what, "", _who(consumers), (share.head_age_seconds or 0.0) > PASSES_S)


def _at(where: str, shares: Sequence[Share]) -> str:
    return named(f"{where}, partition", [str(share.partition) for share in shares])


def _who(consumers: Consumers) -> str:
    return f"ringfence consumers show {quote(consumers.address)}"


def _groups(verb: str, consumers: Consumers, group: str = "") -> str:
    words = [quote(consumers.address), *([group] if group else [])]
    return f"ringfence groups {verb} {' '.join(words)} --consumer-group {quote(consumers.consumer_group)}"
