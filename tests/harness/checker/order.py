"""Judge the order within groups. A line is one group of one address, from one input partition through one lane; two lines have no order between them."""

from collections import defaultdict
from collections.abc import Sequence

from tests.harness.checker.evidence import Accepted, Evidence, shown
from tests.harness.checker.findings import Anomaly, Finding
from tests.harness.history import History


def reordered(evidence: Evidence) -> list[Finding]:
    """Return a finding for each place where a group's order breaks, within one partition of the output; after a shift the rest is in order again."""
    findings = []
    last: dict[tuple[bytes, int, int], Accepted] = {}
    partitions: dict[tuple[str, bytes], dict[int, Accepted]] = defaultdict(dict)
    output = ("", -1)
    for item in evidence.lines:
        if item.group is None:
            continue
        place = (item.record.topic, item.record.partition)
        if place != output:
            output = place
            last.clear()
        if item.input.again is None:  # nobody knows which of two is misplaced
            partitions[output[0], item.group].setdefault(output[1], item)
        line = (item.group, item.input.record.partition, item.input.lane)
        before = last.get(line)
        if before is not None and _order(before) > _order(item):
            findings.append(
                Finding(
                    Anomaly.REORDERED,
                    (item.input.place, item.record.place, before.input.place),
                    f"{_named(item)} was accepted at {item.record.place}, after {_named(before, brief=True)} of its group",
                )
            )
        last[line] = item
    return findings + [
        _scattered(group, firsts) for (_, group), firsts in partitions.items() if len(firsts) > 1
    ]


def _order(each: Accepted) -> tuple[int, int]:
    return each.input.record.offset, each.number


def _named(each: Accepted, *, brief: bool = False) -> str:
    part = f"part {each.number} of " if each.number else ""
    return part + (str(each.input.place) if brief else each.input.describe())


def _scattered(group: bytes, firsts: dict[int, Accepted]) -> Finding:
    accepted = [first.record.place for first in firsts.values()]
    return Finding(
        Anomaly.REORDERED,
        (*(first.input.place for first in firsts.values()), *accepted),
        f"group {shown(group)} is in several partitions of the output, so it has no order: "
        + ", ".join(map(str, accepted)),
    )


def apart(histories: Sequence[History]) -> list[Finding]:
    """Report groups that two addresses write to different partitions: one in parts of its transactions, the other in messages."""
    found: dict[tuple[str, bytes], dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for history in histories:
        for record in history.accepted:
            if record.key is not None:
                found[record.topic, record.key][history.input_topic].add(record.partition)
    return [
        Finding(
            Anomaly.REORDERED,
            (),
            f"group {shown(group)} is in several partitions of {topic}: "
            + ", ".join(f"{sorted(partitions)} from {name}" for name, partitions in by_source.items()),
        )
        for (topic, group), by_source in found.items()
        if len(set().union(*by_source.values())) > max(map(len, by_source.values()))
    ]
