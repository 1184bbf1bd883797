"""Findings: why something has stopped or soon will, and the fix. Pure.

A temporary state, such as a rebalance or an opening lane, is a note. It needs action only if messages wait
longer than it may last.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from shlex import quote
from typing import Final

from agents.rules.lane_rules import OWN_FILE
from app.commands.status import address_findings, consumer_findings, model
from app.commands.status.causes import PASSES_S, Problem, merged, named, quota
from app.commands.status.formatting import waiting
from app.commands.status.model import Address, Bridge, Finding, Lane, Status, Worker
from ringfence_kafka.groups.foreign_members import WAY_OUT
from ringfence_kafka.page.formats import age
from ringfence_kafka.producer import transaction_version

RUN_AGE_MAX_S: Final = 26 * 3600.0
"""Maximum age of the last run in seconds, if a run starts each day."""
_OPENING: Final = frozenset({"opening", "suspended", "closed"})
_STATUS: Final = "ringfence status"
_CHECK: Final = "ringfence topics check"
_CREATE: Final = "ringfence topics create"
_LOOK_AGAIN: Final = ("look again in 15 seconds", _STATUS)


def findings(status: Status) -> list[Finding]:
    """Return all findings, those that need action first."""
    found = [Finding("status", fault) for fault in status.faults]
    found += _workers(status)
    for address in status.addresses:
        found += _address(status, address)
    found += merged(
        "lane",
        (
            (lane.lane, problem, lane.waiting or 0)
            for address in status.addresses
            for lane in address.lanes
            if not _is_of(_topic_faults(status, address), lane)
            for problem in _lane(status, lane, address.topic)
        ),
    )
    consumers_of = f"consumers of {status.app}"
    found += [Finding(consumers_of, fault, command=_CREATE, stands=True) for fault in status.deleted]
    for consumers in status.consumers:
        found += consumer_findings.findings(consumers)
    found += map(consumer_findings.left_letters, status.left_letters)
    found += _bridges(status.bridges)
    found += [
        Finding(f"bridge {left.bridge}", left.what, left.do, stands=left.stands)
        for left in status.left_bridges
    ]
    found += _last_run(status)
    return sorted(found, key=lambda finding: not finding.stands)


def _workers(status: Status) -> Iterator[Finding]:
    where = f"workers of {status.app}"
    for fault in status.foreign:
        what = f"{fault}: messages that it reads are not accepted until it has left"
        yield Finding(where, what, WAY_OUT, stands=True)
    for address, app in status.other_apps:
        what = f"workers of app.id {app} accept its messages too, so each message is accepted twice"
        do = "stop the workers of one of the two; the next reconciliation run names the messages (DOUBLED)"
        yield Finding(f"address {address}", what, do, stands=True)
    if not status.addresses:
        return
    rebalancing = "Rebalance" in status.workers_state
    if not status.workers and not rebalancing:
        offsets = sum(lane.waiting or 0 for address in status.addresses for lane in address.lanes)
        waits = waiting(offsets) if offsets else "no message waits yet"
        what = f"no worker runs, so nothing is accepted; {waits}"
        yield Finding(where, what, "start one", "ringfence worker", stands=True)
    if rebalancing:
        what = "workers come or go: the group assigns its lanes at this moment"
        yield Finding(where, what, *_LOOK_AGAIN)
    yield from merged(
        "worker",
        ((worker.name, problem, 0) for worker in status.workers for problem in _worker(status, worker)),
    )


def _worker(status: Status, worker: Worker) -> Iterator[Problem]:
    if worker.broker == "away":
        what = "brokers do not answer there, and lanes wait"
        yield Problem(what, "look at the brokers and at the network", stands=True)
    if worker.ready is None and worker.lanes:
        at = f"at {worker.web}" if worker.web else "and has no web server (app.web_port = 0)"
        what = f"it does not answer {at}"
        do = (
            "if it died, others get its lanes within app.session_timeout: run this again; else look at it "
            f"on {worker.host}, or set an app.web_host that is reachable from here"
        )
        if worker.unheard is not None:
            what, do = f"{worker.unheard.what}, at {worker.web}", worker.unheard.do
        yield Problem(f"{what}, so the state of its lanes is unknown here", do)
    if worker.state_folder:
        waits = [
            lane
            for address in status.addresses
            for lane in address.lanes
            if lane.worker == worker.name and lane.folder_fault
        ]
        offsets = sum(lane.waiting or 0 for lane in waits)
        what = worker.state_folder
        if waits and worker.lanes_in_memory:
            what += f"; {named('lane', worker.lanes_in_memory)} in memory"
        what += f"; {waiting(offsets)}" if offsets else ""
        stands = bool(waits) or not worker.lanes_in_memory
        yield Problem(what, f"look at the disk of {worker.host}", stands=stands)
    if worker.throttled:
        yield Problem(*quota(worker.throttled))
    addresses = {f"address {address.address}: " for address in status.addresses}
    for fault in worker.faults:
        if not any(map(fault.startswith, addresses)):  # else it is a finding of the address
            yield Problem(fault, command=_CHECK, stands=True)


def _topic_faults(status: Status, address: Address) -> list[str]:
    """Return distinct topic problems of an address, from workers and from this status."""
    prefix = f"address {address.address}: "
    faults = [
        fault.removeprefix(prefix)
        for worker in status.workers
        for fault in worker.faults
        if fault.startswith(prefix)
    ]
    if not any("does not exist" in fault and address.topic in fault.split() for fault in faults):
        faults += address.faults
    return list(dict.fromkeys(faults))


def _is_of(faults: Iterable[str], lane: Lane) -> bool:
    """Return whether a problem of its address keeps a lane from opening."""
    return bool(lane.reason) and any(fault in (lane.reason or "") for fault in faults)


def _address(status: Status, address: Address) -> Iterator[Finding]:
    where = f"address {address.address}"
    for fault in _topic_faults(status, address):
        offsets = sum(lane.waiting or 0 for lane in address.lanes if _is_of([fault], lane))
        what = f"{fault}; {waiting(offsets)}" if offsets else fault
        is_missing = "does not exist" in fault
        of_worker = is_missing and fault not in address.faults  # this file may not name the topic
        do = "if this creates nothing, run it with the file of the worker" if of_worker else ""
        yield Finding(where, what, do, _CREATE if is_missing else _CHECK, stands=True)
    if address.lanes_fault:
        # workers with another file may still run its lanes
        stands = any(lane.state != model.OPEN for lane in address.lanes)
        yield Finding(where, address.lanes_fault, "", _CHECK, stands)
    yield from address_findings.findings(status, address)


def _lane(status: Status, lane: Lane, topic: str) -> Iterator[Problem]:
    late = (lane.head_age_seconds or 0.0) > PASSES_S
    if lane.note:
        do = "compare the next reconciliation run; forbid deleting Ringfence's topics: docs/security.md"
        yield Problem(lane.note, do)
    if lane.state == model.NOBODY:
        if status.workers and "Rebalance" not in status.workers_state:
            what = "no worker has it, though workers run"
            do = (
                "look again in 30 seconds: its topics may be new, and workers that have the address take it by then; else start all "
                "workers with the same configuration"
            )
            yield Problem(what, do, _STATUS, stands=True)
    elif lane.state == "refused":
        command = "" if OWN_FILE in (lane.reason or "") else _CHECK
        yield Problem(f"its worker cannot run it: {lane.reason}", "", command, stands=True)
    elif lane.state == "retrying":
        yield from _retries(status, lane)
    elif lane.state in _OPENING:
        what = f"its worker is about to open it ({lane.state})"
        yield Problem(what, *_LOOK_AGAIN, stands=late)
    elif lane.state == model.UNKNOWN and lane.lag and late:
        yield _unheard(status, lane)
    if lane.undecided_seconds is not None and lane.undecided_seconds > PASSES_S:
        yield Problem(
            f"a producer began a transaction {age(lane.undecided_seconds)} ago and has not ended it: "
            "nothing behind it can be read",
            "stop that producer: the broker then ends it after its transaction.timeout.ms; if it stays for 15 minutes, this tells whether to abort it",
            f"kafka-transactions.sh --bootstrap-server {status.bootstrap_servers} find-hanging --topic {topic}",
            stands=True,
        )


def _unheard(status: Status, lane: Lane) -> Problem:
    worker = next((worker for worker in status.workers if worker.name == lane.worker), None)
    web, silent = (None, None) if worker is None else (worker.web, worker.unheard)
    page = f"its page at {web} does not answer" if web else "it has no web server (app.web_port = 0)"
    do = (
        f"look at the log of {lane.worker}, or make its web server reachable from here (app.web_host, "
        "app.web_port)"
    )
    if silent is not None:
        page, do = f"{silent.what}, at {web}", f"look at the log of {lane.worker}, or: {silent.do}"
    what = f"messages wait for more than a minute, and its worker {lane.worker} does not report why: {page}"
    return Problem(what, do, stands=True)


def _retries(status: Status, lane: Lane) -> Iterator[Problem]:
    reason = lane.reason or ""
    if lane.folder_fault:
        if not any(worker.name == lane.worker and worker.state_folder for worker in status.workers):
            # Its worker reports all these lanes together as soon as one has tried to open again.
            what = "its folder cannot be written, and its worker opens it again"
            yield Problem(what, "look at the disk of its worker", stands=True)
    elif transaction_version.LOWERED in reason:
        command = (
            f"kafka-features.sh --bootstrap-server {status.bootstrap_servers} {transaction_version.RAISE}"
        )
        yield Problem(transaction_version.LOWERED, transaction_version.WAY_OUT, command, stands=True)
    else:
        yield Problem(f"its worker tries again and again: {reason}", "", _CHECK, stands=True)


def _last_run(status: Status) -> Iterator[Finding]:
    run, where = status.last_run, "reconciliation"
    if run is None:
        return
    late = datetime.fromisoformat(status.at).timestamp() - run.ended_ms / 1000
    if late > RUN_AGE_MAX_S:
        what = f"the last run ended {age(late)} ago; later messages are not judged"
        do = "look at its schedule; this command runs it now"
        yield Finding(where, what, do, "ringfence reconcile")
    if not run.ok:
        what = f"the last run ended {age(late)} ago with the verdict {run.verdict}"
        if why := run.error or ", ".join(f"{name} {count:,}" for name, count in run.anomalies.items()):
            what += f": {why}"
        do = f"its report is {run.report} on {run.host}; this command shows its records" if run.report else ""
        yield Finding(where, what, do, "ringfence reconcile show" if run.number else "ringfence reconcile")


def _bridges(bridges: Iterable[Bridge]) -> Iterator[Finding]:
    found: dict[tuple[str, bool], list[str]] = {}
    for bridge in bridges:
        texts = [(bridge.fault, True)] if bridge.fault else []
        for item in [*texts, *((text, bridge.stands) for text in bridge.standing)]:
            found.setdefault(item, []).append(bridge.bridge)
        if bridge.quarantine is not None:
            arguments = f"{quote(bridge.bridge)} --bridge"
            yield address_findings.quarantined(f"bridge {bridge.bridge}", bridge.quarantine, arguments)
    for (text, stands), names in found.items():
        one = f" {quote(names[0])}" if len(names) == 1 else ""
        yield Finding(named("bridge", names), text, "", f"ringfence bridge status{one}", stands=stands)
