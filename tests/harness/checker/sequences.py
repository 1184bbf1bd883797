"""Sequence numbers of accepted IDs, if lanes have several partitions: a lane counts its IDs, of a transaction its own first."""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from itertools import pairwise

from ringfence_kafka.protocol import wire_names
from tests.harness.checker.evidence import Evidence, Input, shown
from tests.harness.checker.findings import Anomaly, Finding
from tests.harness.history import Record


class Sequences:
    """Sequence numbers of IDs, as accepted records state them."""

    def __init__(self, evidence: Evidence) -> None:
        self.findings: list[Finding] = []
        self._first: dict[Input, int] = {}
        if not evidence.history.lanes:
            return
        counting = evidence.history.capacity > 0
        for each in evidence.accepted:
            found = {number for number in self._said(each, counting=counting) if number is not None}
            if len(found) == 1:
                self._first[each] = found.pop()
            elif found:
                self._wrong(each, f"its parts contradict each other: {sorted(found)}")
        self.findings += [*self._used_twice(), *self._fallen()]

    def of(self, each: Input, known: Hashable) -> int | None:
        first = self._first.get(each)
        return None if first is None else first + each.ids.index(known)

    def first(self, each: Input) -> int | None:
        return self._first.get(each)

    def _said(self, each: Input, *, counting: bool) -> Iterator[int | None]:
        records: Mapping[int, Record] = each.by_part or ({0: each.accepted} if each.accepted else {})
        for number, record in records.items():
            part = each.parts[number - 1] if number and each.parts else None
            if each.deleted or (number and part is None):
                continue
            id_ = (each.ids[0] if each.ids else None) if part is None or part.id is None else part.id
            if part is not None and part.id is None and each.own_id is None:
                id_ = None
            text = record.header(wire_names.HEADER_SEQUENCE)
            if id_ not in each.ids or not counting:
                if text is not None:
                    self._wrong(each, f"{record.place} has no ID that counts, and says {shown(text)}")
            elif text is None or not text.isdigit() or text != b"%d" % int(text):
                self._wrong(each, f"{record.place} has an ID, and says {shown(text)}")
            else:
                yield int(text) - each.ids.index(id_)

    def _wrong(self, each: Input, why: str) -> None:
        text = f"{each.describe()}: {wire_names.HEADER_SEQUENCE} is wrong: {why}"
        self.findings.append(Finding(Anomaly.CORRUPTED, (each.place,), text))

    def _used_twice(self) -> Iterator[Finding]:
        """Report two IDs that a lane accepted at one moment: it did not know one of them when it judged the other."""
        seen: dict[tuple[int, int], Input] = {}
        for each, first in self._first.items():
            for number in range(first, first + len(each.ids)):
                other = seen.setdefault((each.lane, number), each)
                if other is not each:
                    text = f"{each.describe()} and {other.place} have one sequence number in lane {each.lane}: {number}"
                    yield Finding(Anomaly.FORGOTTEN, (each.place, other.place), text)
                    break

    def _fallen(self) -> Iterator[Finding]:
        """Report inputs that a lane accepted in another order than that of their partition."""
        lines: dict[tuple[int, int], list[Input]] = defaultdict(list)
        for each in self._first:
            lines[each.lane, each.record.partition].append(each)
        for (lane, partition), inputs in lines.items():
            inputs.sort(key=lambda each: each.record.offset)
            for one, other in pairwise(inputs):
                if self._first[other] < self._first[one]:
                    text = (
                        f"lane {lane} accepted {other.describe()} before {one.place} of partition {partition}"
                    )
                    yield Finding(Anomaly.REORDERED, (other.place, one.place), text)
