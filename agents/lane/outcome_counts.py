"""Counts what became of the records of a lane's transactions."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from agents.batch.batch import DueRecords
from agents.decision.decide import Outcome
from agents.decision.frequent_ids import FrequentIds
from agents.decision.ids_and_groups import IdReader, is_envelope
from agents.lane.forwarding_hint import ForwardingHint
from agents.lane.open import Opening
from tables.ring import Verdict

Observe = Callable[[float, Sequence[int]], None]
"""Called after each transaction with its seconds, and with the number of parts of each envelope that was accepted in it."""

_COUNTED_AS: Final = {
    Verdict.ACCEPTED: "transactions_accepted",
    Verdict.DUPLICATE: "transactions_duplicates",
    Verdict.UNCHECKED: "transactions_unchecked",
}


class OutcomeCounts:
    """The counts of one lane, over all its openings."""

    def __init__(self, opening: Opening, counts: Counter[str], observe: Observe) -> None:
        """``counts`` is the lane's and is counted on."""
        self.parts: Counter[str] = Counter()
        """Parts of envelopes that were accepted, by the address that they were accepted for."""
        self._opening = opening
        self._counts = counts
        self._observe = observe
        self.frequent_ids = FrequentIds(opening.name)
        self._forwarding = ForwardingHint(opening.address, chained=opening.chained)
        self._reader = IdReader(opening.address)

    def add(self, outcome: Outcome, due: Sequence[DueRecords], seconds: float, partitions: int) -> None:
        """Count the outcome of a transaction that took so many seconds. ``partitions``: of the input."""
        verdicts = outcome.checked.verdicts
        duplicates = verdicts.count(Verdict.DUPLICATE)
        self._counts["accepted"] += verdicts.count(Verdict.ACCEPTED)
        self._counts["duplicates"] += duplicates
        self.frequent_ids.add(verdicts, duplicates, partial(self._id_at, outcome, due))
        self._counts["unchecked"] += verdicts.count(Verdict.UNCHECKED)
        self._counts["bridge_duplicates"] += sum(outcome.judged.known)
        self._counts["forwarded"] += len(outcome.forwarded)
        self._counts["quarantined"] += len(outcome.quarantined)
        self._counts["batches"] += 1
        self._observe(seconds, self._count_envelopes(outcome))
        # Only where each lane is a partition, the home lanes show among how many partitions producers choose.
        place = (0, 1) if self._opening.address.lanes else (self._opening.number, partitions)
        self._forwarding.note(
            self._opening.name,
            len(outcome.forwarded),
            len(verdicts),
            (item.home for item in outcome.forwarded),
            place,
        )

    def _id_at(self, outcome: Outcome, due: Sequence[DueRecords], place: int) -> bytes | None:
        """The ID of a message with a verdict; None = it has none, or its hop has decided."""
        if outcome.here:
            item = outcome.here[place]
            return None if item.resent else item.id
        for _, records in due:  # of the core, which made no items
            if place < len(records):
                (identifier,), *_ = self._reader.ids([records[place]])
                return identifier
            place -= len(records)
        return None

    def _count_envelopes(self, outcome: Outcome) -> list[int]:
        """Count each envelope as a message besides. Return how many parts those have that were accepted."""
        found: Counter[str] = Counter()
        sizes: list[int] = []
        found["transactions_quarantined"] = sum(is_envelope(item.record) for item in outcome.quarantined)
        for item, verdict in zip(outcome.here, outcome.checked.verdicts, strict=False):
            if item.unit is None:
                continue
            found[_COUNTED_AS[verdict]] += 1
            if verdict is not Verdict.DUPLICATE:
                self.parts.update(item.unit.addresses)
                sizes.append(len(item.unit.addresses))
        self._counts.update(+found)
        return sizes
