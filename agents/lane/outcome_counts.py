"""Counts the outcomes of a lane's transactions, and IDs that left its ring too early."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from agents.batch.batch import DueRecords, Record
from agents.decision.decide import Outcome
from agents.decision.frequent_ids import FrequentIds, meaning
from agents.decision.ids_and_groups import IdReader, is_envelope
from agents.lane.forwarding_hint import ForwardingHint
from agents.lane.open import Opening
from ringfence_kafka.config.durations import duration_text
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.wording import counted
from tables.promise import Coverage, Promise
from tables.ring import Verdict
from tables.table import LaneTable

log: Final = logging.getLogger("ringfence.lane")

Observe = Callable[[float, Sequence[int]], None]
"""Called after each transaction with its duration in seconds, and the number of parts of each envelope that it accepted."""

_COUNTED_AS: Final = {
    Verdict.ACCEPTED: "transactions_accepted",
    Verdict.DUPLICATE: "transactions_duplicates",
    Verdict.UNCHECKED: "transactions_unchecked",
    Verdict.CONFLICT: "transactions_duplicates",
}
AGAIN_S: Final = 60.0
"""Minimum time between two log lines about IDs that left too early, in seconds."""
EVERY_S: Final = 1.0
"""Time between two messages whose header names are counted, in seconds."""
NAMES_MAX: Final = 32
NAME_CHARACTERS_MAX: Final = 80


class MissingIds:
    """Header names of one lane's messages without an ID."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._look_at = 0.0

    def count(self, header_names: Callable[[], Iterable[str]]) -> None:
        """Count the header names of one message, at most once a second, so that other batches cost nothing."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + EVERY_S
        for name in {name[:NAME_CHARACTERS_MAX] for name in header_names()}:
            if name.startswith(wire_names.RESERVED_PREFIX):
                continue
            if name in self._counts or len(self._counts) < NAMES_MAX:
                self._counts[name] += 1

    @property
    def names(self) -> list[str]:
        """Header names, most frequent first."""
        return [name for name, _ in self._counts.most_common()]


class OutcomeCounts:
    """Counts of one lane, over all its openings."""

    def __init__(self, opening: Opening, counts: Counter[str], observe: Observe) -> None:
        """Create the counts. ``counts``: counter of the lane, which this object adds to."""
        self.parts: Counter[str] = Counter()
        """Number of accepted parts of envelopes, by the address that accepted them."""
        self._opening = opening
        self._counts = counts
        self._observe = observe
        forms = opening.address.duplicate_id_from
        self.frequent_ids = FrequentIds(
            opening.name, parts=0 if isinstance(forms, str) else len(forms), means=meaning(opening.address)
        )
        self.missing_ids = MissingIds()
        self.forwarding = ForwardingHint(opening.address, chained=opening.chained)
        self._reader = IdReader(opening.address)

    def count(self, outcome: Outcome, due: Sequence[DueRecords], seconds: float, partitions: int) -> None:
        """Count the outcome of a transaction that took ``seconds``. ``partitions``: partition count of the input topic."""
        verdicts = outcome.checked.verdicts
        conflicts = verdicts.count(Verdict.CONFLICT)
        duplicates = verdicts.count(Verdict.DUPLICATE) + conflicts
        self._counts["accepted"] += verdicts.count(Verdict.ACCEPTED)
        self._counts["duplicates"] += duplicates
        self._counts["conflicts"] += conflicts + outcome.checked.conflicts_accepted
        caught = verdicts
        if conflicts:
            one = {Verdict.CONFLICT: Verdict.DUPLICATE}
            caught = [one.get(verdict, verdict) for verdict in verdicts]
        self.frequent_ids.count(caught, duplicates, partial(self._id_at, outcome, due))
        unchecked = verdicts.count(Verdict.UNCHECKED)
        self._counts["unchecked"] += unchecked
        if unchecked and self._opening.address.id_cache_size:
            self.missing_ids.count(
                lambda: self._header_names(outcome, due, verdicts.index(Verdict.UNCHECKED))
            )
        self._counts["bridge_duplicates"] += sum(outcome.judged.known)
        if self._opening.address.observes:
            resent = sum(item.resent for item in outcome.here)
            self._counts["observed_duplicates"] += duplicates - resent
        self._counts["forwarded"] += len(outcome.forwarded)
        self._counts["quarantined"] += len(outcome.quarantined)
        self._counts["batches"] += 1
        self._observe(seconds, self._count_envelopes(outcome))
        # Home lanes show the partition count that producers use only if each lane is one partition.
        place = (0, 1) if self._opening.address.lanes else (self._opening.number, partitions)
        self.forwarding.count(
            self._opening.name,
            len(outcome.forwarded),
            len(verdicts),
            (item.home for item in outcome.forwarded),
            place,
        )

    def _id_at(self, outcome: Outcome, due: Sequence[DueRecords], place: int) -> bytes | None:
        """Return the ID of the message with this verdict; None if it has no ID or its hop decided."""
        if outcome.here:
            item = outcome.here[place]
            return None if item.resent else item.id
        record = _record_at(due, place)
        if record is None:
            return None
        (identifier,), *_ = self._reader.ids([record])
        return identifier

    def _header_names(self, outcome: Outcome, due: Sequence[DueRecords], place: int) -> Iterable[str]:
        record = outcome.here[place].record if outcome.here else _record_at(due, place)
        own = self._opening.address.id_headers  # a null is no ID
        return () if record is None else (name for name, _ in record.headers if name not in own)

    def _count_envelopes(self, outcome: Outcome) -> list[int]:
        """Count each envelope also as a message. Return the number of parts of each accepted envelope."""
        found: Counter[str] = Counter()
        sizes: list[int] = []
        found["transactions_quarantined"] = sum(is_envelope(item.record) for item in outcome.quarantined)
        for item, verdict in zip(outcome.here, outcome.checked.verdicts, strict=False):
            if item.unit is None:
                continue
            found[_COUNTED_AS[verdict]] += 1
            if verdict in (Verdict.ACCEPTED, Verdict.UNCHECKED):
                self.parts.update(item.unit.addresses)
                sizes.append(len(item.unit.addresses))
        self._counts.update(+found)
        return sizes


def _record_at(due: Sequence[DueRecords], place: int) -> Record | None:
    """Return the record of a verdict that the native core made. The core makes no items."""
    for _, records in due:
        if place < len(records):
            return records[place]
        place -= len(records)
    return None


class CoverageLog:
    """Counts and logs broken promises in time of one lane, over all its openings."""

    def __init__(self, name: str, counts: Counter[str]) -> None:
        """Create the log. ``counts``: counter of the lane, which this object adds to."""
        self._name = name
        self._counts = counts
        self._unsaid = 0
        """Number of IDs that left too early and are not logged yet."""
        self._say_at = 0.0

    def count(self, before: Promise | None, table: LaneTable) -> None:
        """Count and log the IDs that left too early in a transaction. ``before``: state of the promise before the transaction."""
        after = table.ring.promise
        if before is None or after is None or not (after.broken > before.broken or self._unsaid):
            return
        self._counts["coverage_broken"] += after.broken - before.broken
        self._unsaid += after.broken - before.broken
        now = time.monotonic()
        if now < self._say_at:
            return
        coverage = table.coverage()
        if coverage is not None and self._unsaid:
            log.warning(
                "lane %s: coverage broken: %s",
                self._name,
                broken_text(coverage, self._unsaid, table.ring.capacity),
            )
            self._unsaid, self._say_at = 0, now + AGAIN_S


def broken_text(coverage: Coverage, count: int, capacity: int) -> str:
    """Return the text about IDs that left too early: the consequence and the remedy."""
    age = duration_text(coverage.promise.min_age_ms / 1000)
    text = (
        f"{counted(count, 'ID')} younger than id_min_age = {age} left its ring, which has room for "
        f"id_cache_size_max = {capacity:,} and reaches back {duration_text(coverage.covered_ms // 1000)}: a "
        "duplicate that arrives later is accepted"
    )
    if coverage.holds:
        return f"{text}. The ring covers id_min_age again"
    return (
        f"{text}. At this rate id_cache_size_max = {coverage.enough} would be enough: set it for all workers"
    )
