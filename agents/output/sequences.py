"""Sequence numbers of accepted IDs, for ``_RF_SEQ``. Pure.

The ring gives each new ID of a lane the next number. The header therefore shows the order in which a lane accepted IDs.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice, repeat

from agents.decision.envelope_parts import Unit
from ringfence_kafka.protocol import wire_names
from tables.ring import Checked, Verdict


def sequences_of(checked: Checked) -> Iterator[Sequence[int]]:
    """Return the sequence numbers of each message's IDs; empty for a message without a new ID."""
    numbers = count(checked.first_sequence)
    if checked.owners is None:
        for verdict in checked.verdicts:
            yield (next(numbers),) if verdict is Verdict.ACCEPTED else ()
        return
    owned = Counter(checked.owners)
    for number in range(len(checked.verdicts)):
        yield tuple(islice(numbers, owned[number]))


def part_sequences(unit: Unit, numbers: Sequence[int]) -> Iterable[int | None]:
    """Return the sequence number of each part: that of its own ID, else that of the envelope's.

    ``numbers``: sequence numbers of the unit's distinct IDs, in order.
    """
    if not numbers:
        return repeat(None)
    of_id = dict(zip(dict.fromkeys(unit.ids), numbers, strict=True))
    parts = unit.part_ids or [None] * len(unit.groups)
    has_own = len(unit.ids) > sum(item is not None for item in parts)
    own = numbers[0] if has_own else None
    return [own if item is None else of_id[item] for item in parts]


def sequence_header(number: int) -> tuple[str, bytes]:
    """Return the sequence header of an accepted record."""
    return wire_names.HEADER_SEQUENCE, b"%d" % number
