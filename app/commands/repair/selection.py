"""Which records of a quarantine or dead-letter topic are meant. Pure."""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from app.commands.repair.refused_record import Refused
from ringfence_kafka.errors import ConfigurationError

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SPAN: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")
_SHOWN_MAX: Final = 5
_AT: Final = re.compile(r"([0-9]{1,9})/([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Selection:
    """All that is given must hold; nothing is given: all records.

    Attributes:
        reason: Stands in the reason, in whatever case.
        group: The message's group.
        older_s: Its timestamp is so many seconds ago, or more.
        newer_s: It is no longer ago than that.
        at: Partition and offset of each that is meant; empty = any.
        consumer_group: Whose dead letter.
    """

    reason: str = ""
    group: bytes | None = None
    older_s: float | None = None
    newer_s: float | None = None
    at: Collection[tuple[int, int]] = ()
    consumer_group: str = ""

    def takes(self, refused: Refused, group: bytes | None, now_ms: float) -> bool:
        """Whether this one is meant; ``group`` is its group."""
        age = (now_ms - refused.timestamp) / 1000
        return (
            (not self.at or refused.place[1:] in self.at)
            and (not self.consumer_group or refused.consumer_group == self.consumer_group)
            and (self.group is None or group == self.group)
            and (self.older_s is None or age >= self.older_s)
            and (self.newer_s is None or age <= self.newer_s)
            and self.reason.casefold() in refused.reason.casefold()
        )

    @property
    def everything(self) -> bool:
        """Whether nothing was given."""
        return self == Selection()


@dataclass(slots=True)
class FilterCounts:
    """Open records that were read and are not meant: who mistypes a name learns it from them."""

    count: int = 0
    consumer_groups: set[str] = field(default_factory=set)
    """Whose dead letters they are."""
    foreign: Counter[str] = field(default_factory=Counter)
    """Records of bridges of the same name, by their application. Whether these are settled, it alone knows."""

    def clear(self) -> None:
        """A new look begins."""
        self.count = 0
        self.consumer_groups.clear()
        self.foreign.clear()

    def add(self, refused: Refused) -> None:
        """One more."""
        self.count += 1
        if refused.consumer_group:
            self.consumer_groups.add(refused.consumer_group)

    def __str__(self) -> str:
        groups = sorted(self.consumer_groups)
        shown = ", ".join(groups[:_SHOWN_MAX]) + (", …" if len(groups) > _SHOWN_MAX else "")
        return f"{self.count} others are open" + (f" (consumer groups: {shown})" if groups else "")

    @property
    def told_of_foreign(self) -> str:
        """How many these are and whose, and what to do with them; empty = there are none."""
        if not self.foreign:
            return ""
        apps = sorted(self.foreign.items())
        shown = ", ".join(f"{app}: {count}" for app, count in apps[:_SHOWN_MAX])
        return (
            f"records that bridges of this name of other applications have put there: {shown}{', …' if len(apps) > _SHOWN_MAX else ''}: they are "
            "left alone here; list, redrive or drop them with the configuration of that application"
        )


def span(text: str) -> float:
    """Seconds that ``90s``, ``10m``, ``2h`` or ``7d`` says.

    Raises:
        ConfigurationError: it is none.
    """
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise ConfigurationError(f"{text!r} is no length of time: write 90s, 10m, 2h or 7d")
    return float(found[1]) * _UNITS[found[2]]


def place(text: str) -> tuple[int, int]:
    """Partition and offset that ``PARTITION/OFFSET`` says, as ``list`` shows them.

    Raises:
        ConfigurationError: it says none.
    """
    found = _AT.fullmatch(text.strip())
    if found is None:
        raise ConfigurationError(f"{text!r} is no PARTITION/OFFSET: write 0/17, as `list` shows it")
    return int(found[1]), int(found[2])
