"""Judge a history: name every anomaly, and nothing else. The topics were read whole, but for the input below ``log_starts``, after all came to rest."""

from collections.abc import Iterable
from typing import Final

from ringfence_kafka.protocol import wire_names
from tests.harness.checker.content import corrupted
from tests.harness.checker.evidence import Evidence, Input, shown
from tests.harness.checker.findings import Anomaly, Finding, counts
from tests.harness.checker.hops import Bridged, said_once
from tests.harness.checker.order import reordered
from tests.harness.checker.ring import Originals, Standing, remembered
from tests.harness.checker.sequences import Sequences
from tests.harness.history import History, Outcome, Place, Record, Send

__all__ = ["Anomaly", "Finding", "check", "counts"]

_RANK: Final = {anomaly: number for number, anomaly in enumerate(Anomaly)}


def check(history: History) -> list[Finding]:
    """Return all anomalies of a run, by name in the order of :class:`Anomaly`. Linear but for sorting."""
    evidence = Evidence(history)
    originals, bridged, sequences = Originals(evidence), Bridged(evidence), Sequences(evidence)
    unfound, findings = _producers(evidence)
    if not any(history.log_starts.values()):
        findings += [_lost_send(send) for send in unfound]
    findings += evidence.phantoms
    findings += _fates(evidence, originals, bridged)
    findings += reordered(evidence)
    findings += said_once([*bridged.again()], remembered(evidence, originals, sequences))
    findings += sequences.findings
    findings += corrupted(evidence)
    findings += _gaps(evidence, len(unfound))
    return sorted(findings, key=lambda item: _RANK[item.anomaly])


# -- what producers know -------------------------------------------------------------------------------------------


def _producers(evidence: Evidence) -> tuple[list[Send], list[Finding]]:
    sends = {send.token: send for send in evidence.history.sends}
    if not sends:
        return [], []
    findings = []
    found = set()
    for input_ in evidence.inputs():
        token = input_.record.token
        send = None if token is None else sends.get(token)
        if send is not None:
            found.add(send.token)
        why = None
        if send is None:
            # A quarantined copy of a deleted record need not have its headers.
            why = None if input_.deleted else f"token {shown(token)} is of no attempt"
        elif send.outcome is Outcome.FAIL:
            why = f"attempt {shown(token)} failed for certain"
        if why:
            findings.append(input_.finding(Anomaly.PHANTOM, f"is in the input, but {why}"))
    missing = [send for send in sends.values() if send.outcome is Outcome.OK and send.token not in found]
    return missing, findings


def _lost_send(send: Send) -> Finding:
    text = (
        f"attempt {shown(send.token)} (ID {shown(send.id)}, group {shown(send.group)}) "
        "was acknowledged and is not in the input"
    )
    return Finding(Anomaly.LOST, (), text)


# -- what became of each input -------------------------------------------------------------------------------------


def _fates(evidence: Evidence, originals: Originals, bridged: Bridged) -> Iterable[Finding]:
    for input_ in evidence.inputs():
        if (
            input_.whole
            and input_.again is None
            and not (input_.observed or input_.diverted or input_.quarantined)
        ):
            continue
        if input_.fates() > 1:
            outputs = input_.outputs()
            fates = ", ".join(f"{fate} at {output.place}" for fate, output in outputs)
            places = (output.place for _, output in outputs)
            yield input_.finding(Anomaly.DOUBLED, f"has several fates: {fates}", *places)
        if input_.passed is not None:
            yield from _torn(input_)
        if input_.accepted is None and input_.quarantined is None and input_.fates() < 2:
            yield from _duplicate(evidence, input_, originals, bridged)


def _torn(each: Input) -> Iterable[Finding]:
    """Report a transaction of which some parts were accepted and others not; the missing parts are not LOST besides."""
    if each.whole or each.parts is None:
        return
    missing = ", ".join(str(number) for number in range(1, len(each.parts) + 1) if number not in each.by_part)
    places = (output.place for output in each.by_part.values())
    yield each.finding(Anomaly.TORN, f"was accepted without its parts {missing}", *places)


def _duplicate(evidence: Evidence, each: Input, originals: Originals, bridged: Bridged) -> Iterable[Finding]:
    """Check that an input that was not accepted is a duplicate, and is there if duplicates are diverted or only observed."""
    history, output = evidence.history, each.diverted or each.observed
    if history.divert and output is None:
        yield each.finding(Anomaly.LOST, "is neither accepted, diverted nor quarantined")
        return
    named = output is not None and _named_original(output) is not None
    if bridged.known(each) and not named and each.observed is None:
        return
    if history.observe and output is None:
        yield each.finding(Anomaly.LOST, "is neither accepted nor quarantined, and all is to pass")
        return
    standing = originals.standing(each) if history.capacity else Standing.NONE
    if standing is Standing.NONE and output is None:
        why = "no other of its ID was accepted in its lane" if each.ids else "has no ID"
        if each.ids and not history.capacity:
            why = "IDs are not checked"
        if each.hop is not None:
            why = f"its hop was not known, and {why}"
        why = each.malformed or why
        yield each.finding(Anomaly.LOST, f"is neither accepted nor quarantined, and {why}")
    elif standing is not Standing.FOUND:
        why = "the accepted of its ID came later" if standing is Standing.LATER else "no original exists"
        yield each.finding(Anomaly.WRONG_VERDICT, f"was called duplicate, but {why}")
    elif output is not None and (wrong := _wrong_original(evidence, each, output)):
        yield each.finding(
            Anomaly.WRONG_VERDICT, f"was called duplicate at {output.place}, with {wrong}", output.place
        )


def _named_original(output: Record) -> bytes | None:
    """Return the original that a diverted or observed duplicate names; None = it is not known any more."""
    if (wire_names.HEADER_ORIGINAL, None) in output.headers:
        return None
    verdict = output.header(wire_names.HEADER_VERDICT)
    if verdict is None:
        return output.header(wire_names.HEADER_ORIGINAL) or b""
    _, there, place = verdict.partition(b" ")
    return place if there else None


def _wrong_original(evidence: Evidence, each: Input, output: Record) -> str | None:
    named = _named_original(output)
    if named is None:
        return None
    place = Place.parse(named)
    original = None if place is None else evidence.find(place)
    if original is None:
        return f"an original that is no input: {shown(named)}"
    shared = set(original.ids) & set(each.ids)
    if not shared or original.lane != each.lane or original.accepted is None:
        return f"an original of another ID or lane, or not accepted: {original.describe()}"
    if original.place.partition == each.place.partition and original.place.offset > each.place.offset:
        return f"an original that came later: {original.place}"
    return None


# -- what nobody can know ------------------------------------------------------------------------------------------


def _gaps(evidence: Evidence, unfound: int) -> list[Finding]:
    history = evidence.history
    sends = f"; {unfound} acknowledged attempts are found nowhere, perhaps for that reason" if unfound else ""
    return [
        Finding(
            Anomaly.GAP,
            (Place(history.input_topic, partition, start),),
            f"{history.input_topic}/{partition} begins at {start}: what became of the records before is unknown; "
            f"{evidence.from_deleted[partition]} outputs came from there{sends}",
        )
        for partition, start in sorted(history.log_starts.items())
        if start > 0
    ]
