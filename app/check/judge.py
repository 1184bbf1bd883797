"""Compares inputs with outputs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.check.records import (
    PART_HEADER,
    SEQUENCE_HEADER,
    SOURCE_HEADER,
    Faults,
    Headers,
    Hop,
    Id,
    Place,
    Record,
    Unit,
    Wanted,
    text,
    unit,
)

_OURS: Final = frozenset({SOURCE_HEADER, PART_HEADER, SEQUENCE_HEADER})


@dataclass
class Judgement(Faults):
    """Judgement of one address. It is exact if every message was accepted once, in order, unchanged and whole."""

    address: str
    sent: int = 0
    distinct: int = 0
    resent: int = 0
    """Records that bridges sent again."""
    accepted: int = 0
    """Accepted messages, and transactions, counted by their first parts."""
    parts: int = 0
    """Accepted parts of transactions."""
    straddling: int = 0
    """Resends after the kill whose original was consumed before it."""


def judge(inputs: Mapping[str, Sequence[Record]], outputs: Mapping[str, Sequence[Record]]) -> list[Judgement]:
    """Compare all inputs with all outputs.

    Args:
        inputs: Address → records of its input, ordered by partition and offset.
        outputs: Address → records of its accepted topic, which may come from transactions of other addresses.
    """
    found = {address: Judgement(address, len(records)) for address, records in inputs.items()}
    everything = [unit(address, record) for address, records in inputs.items() for record in records]
    units = {item.place: item for item in everything}
    originals = _originals(everything, found)
    times = {
        place: dict.fromkeys(units[place].wanted, 0)
        for place, original in originals.items()
        if place == original
    }
    order = _Order()
    for address, records in outputs.items():
        for output in records:
            place, part = _source(output), text(dict(output.headers).get(PART_HEADER, b""))
            origin = None if place is None else units.get(place)
            if origin is None or part not in origin.wanted:
                names = f"{SOURCE_HEADER} and {PART_HEADER}" if part else SOURCE_HEADER
                found[address].changed.append(
                    f"{address} {output.partition}/{output.offset}: names no input record in {names}"
                )
                continue
            source = found[origin.place[0]]
            source.accepted += part in {"", next(iter(origin.wanted))}
            source.parts += bool(part)
            name = f"{origin}{part and f' part {part}'}"
            if differences := _differences(origin.wanted[part], address, output):
                source.changed.append(f"{name}: {', '.join(differences)} not as in the input")
            original = originals[origin.place]
            counts = times[original]
            counts[part] = counts.get(part, 0) + 1
            if counts[part] > 1:
                source.doubled.append(f"{name}: accepted {counts[part]} times")
            elif original != origin.place:
                source.out_of_order.append(f"{name}: accepted in place of its original")
            elif fault := order.fault(origin.place, part, address, output):
                source.out_of_order.append(f"{name}: {fault}")
    for place, counts in times.items():
        found[place[0]].distinct += 1
        _judge_whole(found[place[0]], units[place], counts)
    return list(found.values())


def _judge_whole(found: Judgement, original: Unit, counts: Mapping[str, int]) -> None:
    missing = [part for part, count in counts.items() if not count]
    if len(missing) == len(counts):
        found.lost.append(f"{original}: not accepted")
    elif missing:
        found.torn.append(f"{original}: accepted without part {', '.join(missing)}")


def _originals(units: Iterable[Unit], found: Mapping[str, Judgement]) -> dict[Place, Place]:
    """Return the original of each input record: the first record with one of its IDs, or the record itself.

    A record that a bridge sent again counts as such, and has the original of the first send, whatever its IDs.
    """
    first: dict[Id, Place] = {}
    originals: dict[Place, Place] = {}
    hops = _Hops()
    for entry in units:
        sent = None if entry.hop is None else hops.known(entry.place, entry.hop)
        if sent is not None:
            originals[entry.place] = originals[sent]
            found[entry.place[0]].resent += 1
            continue
        known = next((first[known_id] for known_id in entry.ids if known_id in first), None)
        originals[entry.place] = known or entry.place
        if known is None:
            first |= dict.fromkeys(entry.ids, entry.place)
    return originals


class _Hops:
    """Records that bridges have sent, ordered by partition and offset."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, Hop], Place] = {}
        self._confirmed: dict[tuple[str, int, tuple[str, str, str]], tuple[int, Place]] = {}

    def known(self, place: Place, hop: Hop) -> Place | None:
        """Return the record that a hop repeats; None = the hop is new.

        If the repeated record was confirmed but is missing, it returns the record that confirmed it.
        """
        topic, partition, _ = place
        route = topic, partition, hop.source
        confirmed, witness = self._confirmed.get(route, (0, place))
        found = self._first.get((topic, hop._replace(confirmed=0)))
        if found is None and hop.offset < confirmed:
            found = witness
        self._first.setdefault((topic, hop._replace(confirmed=0)), found or place)
        if hop.confirmed > confirmed:
            self._confirmed[route] = hop.confirmed, place
        return found


class _Order:
    """Checks the order of each group in the accepted topics."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, bytes, str, int], tuple[int, int]] = {}
        self._home: dict[tuple[str, bytes], int] = {}

    def fault(self, place: Place, part: str, address: str, output: Record) -> str | None:
        """Return the problem with an output's place, or None. Messages without a group have no order."""
        group = output.key
        if group is None:
            return None
        if self._home.setdefault((address, group), output.partition) != output.partition:
            return (
                f"its group is in the accepted partitions {self._home[address, group]} and {output.partition}"
            )
        topic, partition, offset = place
        line, position = (address, group, topic, partition), (offset, int(part.partition("/")[0] or 0))
        before = self._last.get(line, (-1, 0))
        if position < before:
            behind = f"{before[0]} part {before[1]}" if before[1] else f"{before[0]}"
            return f"accepted after offset {behind} of its group"
        self._last[line] = position
        return None


def straddling(address: str, inputs: Iterable[Record], killed_at: Mapping[int, int]) -> int:
    """Count resends after the killed worker's position whose original lies before it."""
    before: set[Id] = set()
    count = 0
    for record in inputs:
        ids = unit(address, record).ids
        if record.offset < killed_at.get(record.partition, 0):
            before.update(ids)
        else:
            count += not before.isdisjoint(ids)
    return count


def _source(output: Record) -> Place | None:
    """Return the place that an output names; None unless it has exactly one source header."""
    values = [value for name, value in output.headers if name == SOURCE_HEADER]
    if len(values) != 1 or values[0] is None:
        return None
    topic, *numbers = values[0].decode("utf-8", "replace").rsplit("/", 2)
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        return None
    return topic, int(numbers[0]), int(numbers[1])


def _differences(wanted: Wanted, address: str, output: Record) -> list[str]:
    pairs: dict[str, tuple[object, object]] = {
        "address": (wanted.address, address),
        "key": (wanted.key, output.key),
        "value": (wanted.value, output.value),
        "headers": (_theirs(wanted.headers), _theirs(output.headers)),
        "timestamp": (wanted.timestamp, output.timestamp),
    }
    return [name for name, (before, after) in pairs.items() if before != after]


def _theirs(headers: Headers) -> Headers:
    return tuple(header for header in headers if header[0] not in _OURS)
