"""Findings of a consumer group: nobody consumes, a group waits, a handler hangs, a lease is not given up. Pure."""

from collections.abc import Iterator
from typing import Final

from app.commands.status.causes import PASSES_S, Problem, merged, quota
from app.commands.status.formatting import age, quoted, waiting
from app.commands.status.model import Consumers, Finding, Share
from ringfence_kafka.groups.foreign_members import WAY_OUT
from ringfence_kafka.wording import counted

HANGS_S: Final = 300.0
"""A handler that runs one message for longer counts as hanging."""


def findings(consumers: Consumers) -> Iterator[Finding]:
    """Yield findings of the group, then of its partitions."""
    where = f"{consumers.consumer_group} at {consumers.address}"
    rebalances = "REBALANC" in consumers.state.upper()
    if consumers.lag and consumers.waiting and not consumers.members and not rebalances:
        yield Finding(
            where,
            f"nobody consumes, and {waiting(consumers.waiting)}, the oldest for {_oldest(consumers)}",
            f"start a consumer; a group that is not coming back: ringfence consumers forget {quoted(consumers.consumer_group)}",
            f"ringfence consume {quoted(consumers.address)} --handler MODULE:FUNCTION --consumer-group {quoted(consumers.consumer_group)}",
            stands=True,
        )
        return
    for fault in consumers.faults:
        do = WAY_OUT if "foreign member" in fault else ""
        yield Finding(where, fault, do, _who(consumers), stands=True)
    if consumers.throttled:
        yield Finding(where, *quota(consumers.throttled), "", stands=False)
    if consumers.left_behind:
        what = f"{counted(consumers.left_behind, 'handler')} did not end when cancelled; their groups wait for them"
        do = "fix the handler; this lets a group go on without it"
        yield Finding(where, what, do, _groups("skip", consumers, "GROUP"), stands=True)
    for silent in dict.fromkeys(consumers.unheard.values()):
        at = ", ".join(web for web, probe_error in consumers.unheard.items() if probe_error == silent)
        what = f"{silent.what}, at {at}, so what its handlers do is not known here"
        yield Finding(where, what, silent.do, "", stands=False)
    yield from merged(
        Problem(
            f"{where}, partition",
            str(share.partition),
            consumer.what,
            consumer.do,
            consumer.command,
            consumer.stands,
        )
        for share in consumers.partitions
        for consumer in _share(consumers, share, f"{where}, partition {share.partition}")
    )


def _oldest(consumers: Consumers) -> str:
    oldest = consumers.oldest
    return "an unknown time" if oldest is None else age(oldest.head_age_seconds)


def _share(consumers: Consumers, share: Share, where: str) -> Iterator[Finding]:
    late = (share.head_age_seconds or 0.0) > PASSES_S
    if share.waits and share.holder:
        yield from _lease(consumers, share, where)
    elif share.reason:
        yield Finding(where, f"it is not held yet: {share.reason}", "", _who(consumers), stands=late)
    elif consumers.members and share.lag and share.state in {"none", "released"} and not share.waits:
        what = f"nobody was given it, though {counted(len(consumers.members), 'consumer')} run"
        yield Finding(where, what, "", _who(consumers), stands=late)
    if share.running and share.lag:
        yield from _runs(consumers, share, where)
    if share.blocked:
        group = "a group" if share.blocked_group is None else f"group {share.blocked_group}"
        more = f"; so do {counted(share.blocked - 1, 'other')}" if share.blocked > 1 else ""
        yield Finding(
            where,
            f"{group} waits behind a message that is not tried again: its dead letter is written{more}",
            "see why with `ringfence dlq list`, and have it done once more, or drop it with `ringfence dlq drop`",
            f"ringfence dlq redrive {quoted(consumers.address)} --consumer-group {quoted(consumers.consumer_group)}",
            stands=True,
        )
    if share.failing_seconds is not None and share.lag:
        group = "a group" if share.failing_group is None else f"group {share.failing_group}"
        lasts, often = age(share.failing_seconds), counted(share.failing_attempts, "attempt")
        yield Finding(
            where,
            f"{group} waits: its first message fails for {lasts}, {often} so far",
            "fix what the handler depends on"
            + ("" if share.failing_group is None else ", or drop the message"),
            "" if share.failing_group is None else _groups("skip", consumers, quoted(share.failing_group)),
            stands=share.failing_seconds > PASSES_S,
        )


def _runs(consumers: Consumers, share: Share, where: str) -> Iterator[Finding]:
    if share.run_seconds is None:
        if (share.head_age_seconds or 0.0) > PASSES_S and share.failing_seconds is None and not share.waits:
            what = (
                f"{counted(share.running, 'message')} run, and the oldest that is not finished waits for {age(share.head_age_seconds)}: a backlog, "
                "or a handler that hangs; its consumer cannot be asked which"
            )
            do = "look at its log, or have its web server where this machine reaches it (app.web_host, --web-port)"
            yield Finding(where, what, do, _who(consumers), stands=False)
    elif share.run_seconds > PASSES_S:
        group = "no group" if share.run_group is None else f"group {share.run_group}"
        yield Finding(
            where,
            f"a handler runs one message of {group} for {age(share.run_seconds)}, and does not end",
            "nothing, if that may take so long, else fix the handler, or set --handler-timeout"
            + ("" if share.run_group is None else "; this ends the run"),
            "" if share.run_group is None else _groups("release", consumers, quoted(share.run_group)),
            stands=share.run_seconds > HANGS_S,
        )


def _lease(consumers: Consumers, share: Share, where: str) -> Iterator[Finding]:
    holder, silent = (share.holder or "").rpartition("/")[0] or share.holder, share.silent_seconds or 0.0
    if share.holder_is_member is False:
        what = f"{share.waits} waits for the lease of {holder}, which is gone and wrote {age(silent)} ago"
        do = "nothing, if that is less than --lease-timeout; else look at the log of who waits"
        yield Finding(where, what, do, _who(consumers), stands=silent > PASSES_S and bool(share.lag))
    elif share.state == "draining":
        what = (
            f"{share.waits} waits until {holder} has ended what it runs: {counted(share.running, 'message')}"
        )
        do = "nothing; a handler that hangs is ended by this"
        yield Finding(where, what, do, _groups("release", consumers, "GROUP"), stands=False)


def _who(consumers: Consumers) -> str:
    return f"ringfence consumers show {quoted(consumers.address)}"


def _groups(verb: str, consumers: Consumers, group: str) -> str:
    return f"ringfence groups {verb} {quoted(consumers.address)} {group} --consumer-group {quoted(consumers.consumer_group)}"
