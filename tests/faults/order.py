"""Judges the order within groups: REORDERED."""

from collections import defaultdict

from tests.faults.evidence import Evidence, Input, shown
from tests.faults.finding import Anomaly, Finding


def reordered(evidence: Evidence) -> list[Finding]:
    """Each place where a group's order breaks, one finding a place: after a shift the rest is in order again.

    Order is promised among the records of one group from one input partition, and is seen in one partition of the
    output. Of an input that was accepted twice the first counts. Records without a group have no order.
    """
    findings = []
    last: dict[tuple[bytes, int], Input] = {}
    partitions: dict[bytes, dict[int, Input]] = defaultdict(dict)
    output = -1
    for each in evidence.accepted:
        if each.group is None or each.accepted is None:
            continue
        if each.accepted.partition != output:
            output = each.accepted.partition
            last.clear()
        if each.again is None:  # which of two is in the wrong partition, nobody knows
            partitions[each.group].setdefault(output, each)
        line = (each.group, each.record.partition)
        before = last.get(line)
        if before is not None and before.record.offset > each.record.offset:
            findings.append(
                Finding(
                    Anomaly.REORDERED,
                    (each.place, each.accepted.place, before.place),
                    f"{each.describe()} was accepted at {each.accepted.place}, after {before.place} of its group",
                )
            )
        last[line] = each
    return findings + [_scattered(group, firsts) for group, firsts in partitions.items() if len(firsts) > 1]


def _scattered(group: bytes, firsts: dict[int, Input]) -> Finding:
    accepted = [each.accepted.place for each in firsts.values() if each.accepted is not None]
    return Finding(
        Anomaly.REORDERED,
        (*(each.place for each in firsts.values()), *accepted),
        f"group {shown(group)} is in several partitions of the output, so it has no order: "
        + ", ".join(map(str, accepted)),
    )
