"""Compare outputs with their inputs, byte by byte: CORRUPTED."""

import json
from hashlib import blake2b

from ringfence_kafka.protocol import wire_names
from tests.harness.checker import hops, transactions
from tests.harness.checker.evidence import Evidence, Fate, Input
from tests.harness.checker.findings import Anomaly, Finding
from tests.harness.history import Headers, Record


def corrupted(evidence: Evidence) -> list[Finding]:
    """Return a finding for each output that differs from what its input promises. A deleted input is rebuilt from its first output."""
    findings = []
    for input_ in evidence.inputs():
        for fate, output in input_.outputs():
            wrong = _JUDGES[fate](input_, output)
            if fate in {Fate.ACCEPTED, Fate.OBSERVED}:
                wrong += _verdict(evidence, input_, output)
            if wrong:
                findings.append(
                    input_.finding(
                        Anomaly.CORRUPTED,
                        f"was {fate} at {output.place} with {', '.join(wrong)}",
                        output.place,
                    )
                )
    return findings


def _accepted(each: Input, output: Record) -> list[str]:
    """Compare an accepted record, or a part, which is accepted as the same message would be if it were sent alone."""
    record, group, place = each.record, each.group, None
    if each.parts is not None:
        number = transactions.number_of(output)
        part = None if number is None else each.parts[number[0] - 1]
        if number is None or part is None:  # only the count of a deleted envelope is known
            return []
        record, group, place = part.message, part.group, b"%d/%d" % number
    wrong = _differences(record, output)
    if output.key != group:
        wrong.append(f"key {output.key!r}, not the group")
    if output.timestamp != record.timestamp:
        wrong.append(f"timestamp {output.timestamp}, not {record.timestamp}")
    if _all(output, wire_names.HEADER_SOURCE) != [str(each.place).encode()]:
        wrong.append(f"more than one {wire_names.HEADER_SOURCE}, or another spelling of it")
    keys = _all(output, wire_names.HEADER_KEY)
    if keys != ([] if record.key == group else [record.key]):
        wrong.append(f"{wire_names.HEADER_KEY} {keys!r} where the input's key is {record.key!r}")
    if _all(output, transactions.PLACE) != ([] if place is None else [place]):
        wrong.append(f"{transactions.PLACE} that is not its own")
    if transactions.is_envelope(output):
        wrong.append(f"{transactions.HEADER}, as if it were an envelope")
    return wrong + _bridged(each, output)


def _verdict(evidence: Evidence, each: Input, output: Record) -> list[str]:
    """Compare the verdict, which only an address that observes shows: all parts of a transaction have one."""
    found = _all(output, wire_names.HEADER_VERDICT)
    if not evidence.history.observe:
        return [f"{wire_names.HEADER_VERDICT}, where duplicates do not pass"] if found else []
    new = b"ACCEPTED" if each.ids and evidence.history.capacity else b"UNCHECKED"
    right = [new] if each.observed is None else _all(each.observed, wire_names.HEADER_VERDICT)
    if found == right or each.deleted:
        return []
    return [f"{wire_names.HEADER_VERDICT} {found!r}, not {right!r}"]


def _bridged(each: Input, output: Record) -> list[str]:
    """Compare the headers of a bridge: only ``_RF_HOPS`` stays on accepted records."""
    wrong = []
    if not each.deleted and _all(output, wire_names.HEADER_HOPS) != hops.passed(each.record, each.hop):
        wrong.append(f"another {wire_names.HEADER_HOPS} than its input has")
    if any(name in hops.OF_BRIDGES for name, _ in output.headers):
        wrong.append("headers of the bridge that it came over")
    return wrong


def _diverted(each: Input, output: Record) -> list[str]:
    wrong = _differences(each.record, output)
    if output.key != each.record.key:
        wrong.append(f"key {output.key!r}, not {each.record.key!r}")
    return wrong


def _quarantined(each: Input, output: Record) -> list[str]:
    """Compare a quarantined record. A value that did not fit is named by size and digest; key and headers may then be left out."""
    record = each.record
    wrong = []
    if not output.header(wire_names.HEADER_REASON):
        wrong.append(f"no {wire_names.HEADER_REASON}")
    whole = output.value == record.value
    if not whole and not _is_digest(record.value or b"", output.value):
        wrong.append("another value, which is no digest of it either")
    if not whole and output.key is None and not _user_headers(output.headers):
        return wrong
    if output.key != record.key:
        wrong.append(f"key {output.key!r}, not {record.key!r}")
    if _user_headers(output.headers) != _user_headers(record.headers):
        wrong.append("other headers")
    return wrong


_JUDGES = {
    Fate.ACCEPTED: _accepted,
    Fate.OBSERVED: _accepted,
    Fate.DIVERTED: _diverted,
    Fate.QUARANTINED: _quarantined,
}


def _differences(record: Record, output: Record) -> list[str]:
    wrong = []
    if output.value != record.value:
        wrong.append("another value")
    if _user_headers(output.headers) != _user_headers(record.headers):
        wrong.append("other headers")
    return wrong


def _user_headers(headers: Headers) -> list[tuple[str, bytes | None]]:
    prefix = wire_names.RESERVED_PREFIX
    return [header for header in headers if not header[0].startswith(prefix)]


def _all(record: Record, name: str) -> list[bytes | None]:
    return [value for item, value in record.headers if item == name]


def _is_digest(value: bytes, instead: bytes | None) -> bool:
    expected = {"bytes": len(value), "blake2b_256": blake2b(value, digest_size=32).hexdigest()}
    try:
        return bool(json.loads(instead or b"") == expected)
    except ValueError:
        return False
