"""Findings of an address: quarantine, rings, and messages. Pure."""

from collections.abc import Iterator
from itertools import chain
from shlex import quote
from typing import Final

from app.commands.repair.records import resend_advice
from app.commands.status import model
from app.commands.status.causes import SHOWN_MAX, Problem, named
from app.commands.status.formatting import share
from app.commands.status.model import Address, Finding, FrequentId, Status
from ringfence_client.progress.open_records import OpenRecords
from ringfence_kafka.page.formats import age
from ringfence_kafka.protocol.duplicate_id import NO_ID
from ringfence_kafka.wording import counted, first_of

COVERS_LITTLE_S: Final = 60.0
"""Covered time of a full ring below which there is a note, in seconds: resends may come later."""
_SAME_FILE: Final = "give all workers the same file, and restart those that have another one"


def findings(status: Status, address: Address) -> Iterator[Finding]:
    """Yield the findings of one address, except problems of its topics."""
    where = f"address {address.address}"
    if address.quarantine is not None:
        yield quarantined(where, address.quarantine, quote(address.address), address.chain_start)
    problems = chain(
        _gaps(address),
        _limits(status, address),
        _own_rules(address),
        _ring(address),
        _unchecked(address),
        _frequent_ids(address),
        _forwarded(address),
        _observed(address),
    )
    yield from (Finding(where, *problem) for problem in problems)


def quarantined(where: str, records: OpenRecords, arguments: str, chain_start: str = "") -> Finding:
    """Return the finding about open records of an address or a bridge.

    Args:
        where: The address or the bridge.
        records: Its open records.
        arguments: Arguments of the command.
        chain_start: First address of the chain that feeds the address; empty = the records can be redriven.
    """
    verb = "list"
    if chain_start:
        do = f"fix the reason, then {resend_advice(chain_start)}"
    elif records.oldest_reason.startswith(NO_ID):
        do = "a redrive leaves records without an ID: have producers send them again with an ID, then drop them; this command shows the reason of each record"
    else:
        verb = "redrive"
        do = "fix the reason, then redrive them; `ringfence quarantine list` shows them, and `ringfence quarantine drop` discards them"
    what = records.described("quarantined record")
    return Finding(where, what, do, f"ringfence quarantine {verb} {arguments}", stands=True)


def _gaps(address: Address) -> Iterator[Problem]:
    """Yield a problem if records were deleted before a worker processed them."""
    lanes = [lane for lane in address.lanes if lane.gap_records]
    if lanes:
        number = sum(lane.gap_records for lane in lanes)
        what = f"{counted(number, 'record was', 'records were')} deleted from its input before {named('lane', [lane.lane for lane in lanes])} processed them"
        do = f"send them again, and raise retention.ms of {address.topic} above the longest outage; the reconciliation run names the offsets as GAP"
        yield Problem(what, do, "ringfence reconcile")


def _limits(status: Status, address: Address) -> Iterator[Problem]:
    """Yield one problem if live workers disagree on limits: each of them reports it for all."""
    said = dict.fromkeys(text for worker in status.workers for text in worker.limits.get(address.address, ()))
    if said:
        what = f"live workers do not agree on what its rings remember: {'; '.join(said)}; each ring keeps its recorded limits"
        yield Problem(what, _SAME_FILE)


def _own_rules(address: Address) -> Iterator[Problem]:
    """Yield a problem for each key on which workers differ, if each uses its own value."""
    for key in dict.fromkeys(key for lane in address.lanes for key in lane.own_rules):
        found: dict[str, list[str]] = {}
        for lane in address.lanes:
            if lane.worker and key in lane.own_rules:
                found.setdefault(lane.own_rules[key], []).append(lane.worker)
        if len(found) > 1:
            said = "; ".join(
                f'{named("worker", list(dict.fromkeys(workers)))}: "{value}"'
                for value, workers in found.items()
            )
            what = f"live workers do not agree on {key}: {said}; each uses its own file"
            yield Problem(what, _SAME_FILE)


def _ring(address: Address) -> Iterator[Problem]:
    """Yield a problem if its rings forget IDs early: against ``id_min_age``, or within a minute."""
    if promises := [lane.promise for lane in address.lanes if lane.promise]:
        if broken := [promise for promise in promises if not promise["holds"]]:
            enough = max(promise["enough"] for promise in broken)
            what = f"IDs younger than id_min_age leave {'its ring' if len(address.lanes) == 1 else 'its rings'}: a resend may be accepted again"
            do = f"set id_cache_size_max = {enough}, which would be enough at this rate; this command shows each ring"
            yield Problem(what, do, f"ringfence rings show {address.address}")
        return
    fullest, covered = address.fullest, address.seconds_covered
    if fullest is None or covered is None or (fullest.ring_size or 0) < (fullest.ring_capacity or 0):
        return
    if covered < COVERS_LITTLE_S:
        what = (
            f"its ring is full and reaches back {age(covered)}: a resend that comes later is accepted again"
        )
        do = "raise id_cache_size; this command recommends a value"
        yield Problem(what, do, f"ringfence audit {address.topic}")


def _unchecked(address: Address) -> Iterator[Problem]:
    """Yield a problem if messages have no ID although IDs are checked."""
    names = list(dict.fromkeys(name for lane in address.lanes for name in lane.unchecked_headers))
    number = sum(lane.unchecked or 0 for lane in address.lanes if lane.ring_capacity)
    if not number:
        return
    what = f"{counted(number, 'message has', 'messages have')} no duplicate ID ({share(address.unchecked_share)}): a resend is accepted again"
    do, command = "have producers set the ID, or name its place with duplicate_id_from", ""
    if names:
        likely = next((name for name in names if "dup" in name.lower() or name.lower().endswith("id")), None)
        what += f"; headers of such messages: {first_of(names, SHOWN_MAX)}"
        do = "if one of these headers is the ID, add it to duplicate_id_headers, else have producers set the ID"
        if likely is not None:
            do += "; this command tries one"
            command = f"ringfence audit {quote(address.topic)} --id-header {quote(likely)}"
    yield Problem(what, do, command)


def _frequent_ids(address: Address) -> Iterator[Problem]:
    """Yield a problem for each ID with a large share of the duplicates, over all lanes that report it."""
    found: dict[str, list[FrequentId]] = {}
    for lane in address.lanes:
        if lane.frequent_id is not None:
            found.setdefault(lane.frequent_id.id, []).append(lane.frequent_id)
    for name, lanes in found.items():
        texts = lanes[0].parts or [name]
        count, duplicates = sum(item.count for item in lanes), sum(item.duplicates for item in lanes)
        what = (
            f"{share(count / duplicates)} of the {duplicates:,} duplicates of the last hour have the ID {' '.join(texts)}"
            f"{f'. {lanes[0].means}' if lanes[0].means else ''}"
        )
        do = "give each message an ID of its own; this shows what each lane accepted under that ID"
        searched = " ".join(quote(f"text:{text}" if text.startswith("-") else text) for text in texts)
        yield Problem(what, do, f"ringfence rings find {quote(address.address)} {searched}")


def _forwarded(address: Address) -> Iterator[Problem]:
    found: dict[str, float] = {}
    for lane in address.lanes:
        if advice := lane.forwarding_advice:
            found[advice] = max(found.get(advice, 0.0), lane.forwarding_share or 0.0)
    for advice, most in found.items():
        what = f"up to {share(most)} of the records of a lane are forwarded to their home, which costs a second write"
        yield Problem(what, advice)


def _observed(address: Address) -> Iterator[Problem]:
    observing = [lane for lane in address.lanes if lane.observes]
    if not observing:
        return
    passed = sum(lane.observed_duplicates or 0 for lane in observing)
    judged = sum(lane.judged for lane in observing)
    what = f"it only observes: of {counted(judged, 'message')}, {counted(passed, 'duplicate')} passed that it would have dropped"
    do = 'to drop them, set mode = "enforce" and restart its workers; no ID is forgotten'
    others = [lane.lane for lane in address.lanes if lane.state == model.OPEN and not lane.observes]
    if others:
        what += f"; {named('lane', others)} {'drops' if len(others) == 1 else 'drop'} them"
        do = "give all workers the same mode, and restart those that had another one"
    yield Problem(what, do)
