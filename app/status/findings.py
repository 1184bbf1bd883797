"""Why something has stopped, or soon will: a sentence each, and what helps. Pure.

What stands comes first. A state that passes by itself, such as a rebalance or a lane that is being opened, is a note: it stands only when
messages have waited for longer than it may take.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from app.status import model
from app.status.model import Address, Bridge, Consumers, Finding, Lane, Share, Status
from app.status.wording import age, count

PASSES_S: Final = 60.0
"""Rebalances, openings, leases that run out and first attempts are over by then."""
COVERS_LITTLE_S: Final = 60.0
"""A full ring that reaches back no further than this is worth a note: resends come later."""
_OPENING: Final = frozenset({"opening", "suspended", "closed"})


def findings(status: Status) -> list[Finding]:
    """Of all; what stands first, else in the order of a message's way."""
    found = [Finding("status", fault, "", stands=False) for fault in status.faults]
    found += _workers(status)
    for address in status.addresses:
        found += _address(status, address)
    for consumers in status.consumers:
        found += _consumers(consumers)
    for bridge in status.bridges:
        found += _bridge(bridge)
    return sorted(found, key=lambda each: not each.stands)


def _workers(status: Status) -> Iterator[Finding]:
    if not status.addresses:
        return
    rebalancing = "Rebalance" in status.workers_state
    if not status.workers and not rebalancing:
        waiting = sum(each.lag or 0 for each in status.addresses)
        waits = f"{count(waiting, 'message')} wait" if waiting else "no message waits yet"
        yield Finding(
            f"workers of {status.app}",
            f"no worker runs, so nothing is accepted; {waits}",
            "ringfence worker",
            stands=True,
        )
    if rebalancing:
        yield Finding(
            f"workers of {status.app}",
            "workers come or go: the group gives out its lanes at this moment",
            "look again in 15 seconds: ringfence status",
            stands=False,
        )
    for worker in status.workers:
        if worker.broker == "away":
            yield Finding(
                f"worker {worker.name}", "brokers do not answer it; its lanes wait", "look at the brokers and at its network", stands=True
            )  # fmt: skip
        if worker.ready is None and worker.lanes:
            where = f"at {worker.web}" if worker.web else "and has no web server (app.web_port = 0)"
            yield Finding(
                f"worker {worker.name}",
                f"it does not answer {where}, so how its lanes do is not known here",
                f"ask on {worker.host}, or give it an app.web_host that this machine reaches",
                stands=False,
            )
        for fault in worker.faults:
            yield Finding(f"worker {worker.name}", fault, "ringfence topics check", stands=True)


def _address(status: Status, address: Address) -> Iterator[Finding]:
    for fault in address.faults:
        yield Finding(f"address {address.address}", fault, "ringfence topics create", stands=True)
    told: dict[tuple[str, str, bool], list[Lane]] = {}
    for lane in address.lanes:
        for what, do, stands in _lane(status, lane):
            told.setdefault((what, do, stands), []).append(lane)
    for (what, do, stands), lanes in told.items():
        yield Finding(
            _named("lane", [each.lane for each in lanes]), f"{what}{_waiting(lanes)}", do, stands=stands
        )
    yield from _ring(address)


def _lane(status: Status, lane: Lane) -> Iterator[tuple[str, str, bool]]:
    """What is wrong, what helps, and whether it stands; lanes of which the same is true are told together."""
    late = (lane.head_age_seconds or 0.0) > PASSES_S
    if lane.state == model.NOBODY:
        if status.workers and "Rebalance" not in status.workers_state:
            yield (
                "no worker has it, though workers run: they were started with other addresses",
                "start all workers with the same configuration, then: ringfence status",
                True,
            )
    elif lane.state == "refused":
        yield f"its worker must not run it: {lane.reason}", "ringfence topics check", True
    elif lane.state == "retrying":
        yield f"its worker tries again and again: {lane.reason}", "ringfence topics check", True
    elif lane.state in _OPENING:
        yield (
            f"its worker is about to open it ({lane.state})",
            "look again in 15 seconds: ringfence status",
            late,
        )
    if lane.undecided_seconds is not None and lane.undecided_seconds > PASSES_S:
        yield (
            f"a producer began a transaction {age(lane.undecided_seconds)} ago and has not ended it: nothing behind it may be read",
            "kafka-transactions.sh find-hanging; stop that producer, or abort its transaction",
            True,
        )


def _waiting(lanes: Iterable[Lane]) -> str:
    lag = sum(each.lag or 0 for each in lanes)
    return f"; {count(lag, 'message')} wait" if lag else ""


def _ring(address: Address) -> Iterator[Finding]:
    fullest, covered = address.fullest, address.seconds_covered
    if fullest is None or covered is None or (fullest.ring_size or 0) < (fullest.ring_capacity or 0):
        return
    if covered < COVERS_LITTLE_S:
        yield Finding(
            f"address {address.address}",
            f"its ring is full and reaches back {age(covered)}: a resend that comes later is accepted again",
            f"raise id_cache_size: ringfence audit {address.topic} says how far",
            stands=False,
        )


def _consumers(consumers: Consumers) -> Iterator[Finding]:
    where = f"{consumers.consumer_group} at {consumers.address}"
    if consumers.lag and not consumers.members and "REBALANC" not in consumers.state.upper():
        yield Finding(
            where,
            f"nobody consumes, and {count(consumers.lag, 'message')} wait, the oldest for {_oldest(consumers)}",
            f"ringfence consume {consumers.address} --handler MODULE:FUNCTION --consumer-group {consumers.consumer_group}; if "
            f"the group is of the past: ringfence status --ignore-group {consumers.consumer_group}",
            stands=True,
        )
        return
    for fault in consumers.faults:
        yield Finding(where, fault, f"ringfence consumers show {consumers.address}", stands=True)
    if consumers.left_behind:
        yield Finding(
            where,
            f"{count(consumers.left_behind, 'handler')} did not end when cancelled; their groups wait for them",
            f"ringfence groups skip {consumers.address} GROUP --consumer-group {consumers.consumer_group}, and fix the handler",
            stands=True,
        )
    for share in consumers.partitions:
        yield from _share(consumers, share, f"{where}, partition {share.partition}")


def _oldest(consumers: Consumers) -> str:
    oldest = consumers.oldest
    return "an unknown time" if oldest is None else age(oldest.head_age_seconds)


def _share(consumers: Consumers, share: Share, where: str) -> Iterator[Finding]:
    silent = share.silent_seconds or 0.0
    if share.waits and share.holder:
        holder = f"{share.holder.rpartition('/')[0] or share.holder}"
        if share.holder_is_member is False:
            yield Finding(
                where,
                f"{share.waits} waits for the lease of {holder}, which is gone and wrote {age(silent)} ago",
                "nothing, if that is less than --lease-timeout; else look at the log of who waits",
                stands=silent > PASSES_S and bool(share.lag),
            )
        elif share.state == "draining":
            yield Finding(
                where,
                f"{share.waits} waits until {holder} has ended what it runs: {count(share.running, 'message')}",
                f"nothing, or: ringfence groups release {consumers.address} GROUP --consumer-group {consumers.consumer_group}",
                stands=False,
            )
    elif share.reason:
        yield Finding(
            where, f"it is not held yet: {share.reason}", f"ringfence consumers show {consumers.address}",
            stands=(share.head_age_seconds or 0.0) > PASSES_S,
        )  # fmt: skip
    elif consumers.members and share.lag and share.state in {"none", "released"} and not share.waits:
        yield Finding(
            where,
            f"nobody was given it, though {count(len(consumers.members), 'consumer')} run",
            f"ringfence consumers show {consumers.address}",
            stands=(share.head_age_seconds or 0.0) > PASSES_S,
        )
    if share.failing_seconds is not None and share.lag:
        group = "a group" if share.failing_group is None else f"group {share.failing_group}"
        yield Finding(
            where,
            f"{group} waits: its first message fails for {age(share.failing_seconds)}, {count(share.failing_attempts, 'attempt')} so far",
            "fix what the handler depends on"
            + ("" if share.failing_group is None else _or_skip(consumers, share.failing_group)),
            stands=share.failing_seconds > PASSES_S,
        )


def _or_skip(consumers: Consumers, group: str) -> str:
    return f", or drop the message: ringfence groups skip {consumers.address} {quoted(group)} --consumer-group {consumers.consumer_group}"


def quoted(group: str) -> str:
    """A group's name as a shell and the verbs take it."""
    if group.replace("-", "").replace("_", "").replace(".", "").isalnum() and not group.startswith("-"):
        return group
    return "'" + group.replace("'", "'\\''") + "'"


def _bridge(bridge: Bridge) -> Iterator[Finding]:
    where = f"bridge {bridge.bridge}"
    if bridge.fault:
        yield Finding(where, bridge.fault, "ringfence bridge status", stands=True)
    for text in bridge.standing:
        yield Finding(where, text, f"ringfence bridge status {bridge.bridge}", stands=bridge.stands)


def _named(kind: str, names: list[str]) -> str:
    if len(names) == 1:
        return f"{kind} {names[0]}"
    shown = ", ".join(names[:4])
    return f"{kind}s {shown}{f' and {len(names) - 4} more' if len(names) > 4 else ''}"  # noqa: PLR2004
