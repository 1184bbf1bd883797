"""Finds an ID that makes up a large part of a lane's duplicates in the last hour.

If an address drops duplicates, a producer that always sends the same ID loses all messages but the first, unnoticed.

The counters follow Misra and Gries (1982). With k counters, each ID with more than 1/(k + 1) of the duplicates has a counter. Large batches
are sampled, so counts are estimates. An ID is named after :data:`REPEATS_MIN` samples, since retries of one message follow one another.
"""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ringfence_kafka.config.addresses import AddressSettings
from ringfence_kafka.protocol.stored_ids import display_id, display_parts
from tables.ring import Verdict

log: Final = logging.getLogger("ringfence.lane")

SHARE: Final = 0.1
"""An ID with more than this share of the duplicates is frequent."""
REPEATS_MIN: Final = 10
"""Minimum number of sampled duplicates of one ID. A share of fewer duplicates is not meaningful."""
COUNTERS: Final = 32
SAMPLES_MAX: Final = 32
"""Maximum number of duplicates of a batch that are sampled. Each sample represents an equal part of them."""
HALF_HOUR_S: Final = 1800.0
_GOLDEN: Final = (math.sqrt(5) - 1) / 2
"""Multiples of this number modulo 1 are spread evenly."""


class FrequentId(NamedTuple):
    """A frequent ID and its duplicates in the last hour."""

    id: bytes
    repeats: int
    """Estimated number of duplicates with this ID."""
    duplicates: int
    parts: Sequence[str] = ()
    """Readable parts of the ID; empty if it has one part or only its digest is known."""

    @property
    def text(self) -> str:
        """Readable ID."""
        return " ".join(self.parts) or display_id(self.id)

    @property
    def share(self) -> float:
        """Share of the ID among all duplicates."""
        return self.repeats / self.duplicates


def meaning(address: AddressSettings) -> str:
    """Return what happens to the messages of a producer that always sends the same ID."""
    producer = "A producer that sends one ID with all its messages"
    if address.observes:
        return f'{producer} loses none here; mode = "enforce" would keep only the first'
    if address.on_conflict == "accept":
        return f"{producer} loses those whose value came before"
    if address.diverts:
        return f"All but the first message of a producer that sends one ID go to {address.duplicates_topic}"
    return f"{producer} loses all but the first"


class FrequentIds:
    """Duplicates of one lane, in the current and the previous window of half an hour."""

    def __init__(self, lane: str, parts: int = 0, means: str = "") -> None:
        """Create empty windows. ``parts``: number of parts of an ID, 0 = no parts; ``means``: result of :func:`meaning`."""
        self._lane = lane
        self._parts = parts
        self.means = means
        self._windows = [_Window(-math.inf), _Window(-math.inf)]
        self._batches = 0
        self._warned: dict[bytes, float] = {}
        """Time of the last warning about each ID."""

    def count(
        self, verdicts: Sequence[Verdict], duplicates: int, id_at: Callable[[int], bytes | None]
    ) -> None:
        """Count the duplicates of a batch, and warn. ``id_at``: returns the ID of the message with this index; None = no ID."""
        if not duplicates:
            return
        window = self._present()
        window.duplicates += duplicates
        places = self._sample(verdicts, duplicates)
        for place in places:
            if (identifier := id_at(place)) is not None:
                window.add(identifier, duplicates / len(places))
        self._batches += 1
        self._warn()

    @property
    def most(self) -> FrequentId | None:
        """Most frequent ID; None if no ID has more than :data:`SHARE`."""
        self._present()
        counts: Counter[bytes] = Counter()
        for window in self._windows:
            counts.update(window.counts)
        if not counts:
            return None
        identifier, count = max(counts.items(), key=lambda item: item[1])
        samples = sum(window.samples[identifier] for window in self._windows)
        parts = display_parts(identifier, self._parts) if self._parts else ()
        duplicates = sum(window.duplicates for window in self._windows)
        found = FrequentId(identifier, round(count), duplicates, parts)
        return found if samples >= REPEATS_MIN and found.share > SHARE else None

    def _present(self) -> "_Window":
        """Return the current window, after windows that ended are replaced."""
        now = time.monotonic()
        late = now - self._windows[0].began
        if late >= HALF_HOUR_S:
            before = self._windows[0] if late < 2 * HALF_HOUR_S else _Window(-math.inf)
            self._windows = [_Window(now), before]
        return self._windows[0]

    def _sample(self, verdicts: Sequence[Verdict], duplicates: int) -> list[int]:
        """Return the indexes of some duplicates: all of a few, else those that follow points which are spread evenly over the batch."""
        if duplicates <= SAMPLES_MAX:
            places: list[int] = []
            for _ in range(duplicates):
                places.append(verdicts.index(Verdict.DUPLICATE, places[-1] + 1 if places else 0))
            return places
        step, begin = len(verdicts) / SAMPLES_MAX, self._batches * _GOLDEN % 1
        found: set[int] = set()
        for number in range(SAMPLES_MAX):
            try:
                found.add(verdicts.index(Verdict.DUPLICATE, int((number + begin) * step)))
            except ValueError:
                break
        return sorted(found) or [verdicts.index(Verdict.DUPLICATE)]

    def _warn(self) -> None:
        found, now = self.most, time.monotonic()
        if found is None or now - self._warned.get(found.id, -math.inf) < 2 * HALF_HOUR_S:
            return
        self._warned = {name: at for name, at in self._warned.items() if now - at < 2 * HALF_HOUR_S} | {
            found.id: now
        }
        log.warning(
            "lane %s: %.0f %% of the %d duplicates of the last hour have the ID %s. %s: give each message an ID of its own",
            self._lane, found.share * 100, found.duplicates, found.text, self.means,
        )  # fmt: skip


class _Window:
    def __init__(self, began: float) -> None:
        self.began = began
        self.duplicates = 0
        self.counts: dict[bytes, float] = {}
        self.samples: Counter[bytes] = Counter()
        """Sampled duplicates of the IDs in :attr:`counts`, unweighted."""

    def add(self, identifier: bytes, weight: float) -> None:
        counts = self.counts
        self.samples[identifier] += 1
        if identifier in counts:
            counts[identifier] += weight
        elif len(counts) < COUNTERS:
            counts[identifier] = weight
        else:
            less = min(weight, *counts.values())
            self.counts = {name: count - less for name, count in counts.items() if count > less}
            if weight > less:
                self.counts[identifier] = weight - less
            self.samples = Counter({name: self.samples[name] for name in self.counts})
