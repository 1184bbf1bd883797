"""Options, changes and results of a lane's table."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tables.codec import Meta
from tables.hops import NOTHING, Judged
from tables.promise import Promise
from tables.ring import Checked


class Restored(NamedTuple):
    """Cost of an opening."""

    records: int
    """Changelog records read, the one read again as a check included."""
    seconds: float
    reused: bool
    """RocksDB was trusted; else it was built from the whole changelog."""
    kept: bool = False
    """Ring and hop memory were in memory still, and only what came since was read."""


class Change(NamedTuple):
    """Effect of one batch: records in its transaction, then :meth:`tables.table.LaneTable.apply`."""

    checked: Checked
    slots: Iterable[tuple[bytes, bytes]]
    """Ring records: key, value."""
    removed: list[bytes]
    """Keys of slots of an earlier capacity that hold nothing alive any more: tombstones."""
    meta: Meta
    judged: Judged = NOTHING
    """Result of the hop memory."""
    hops: Sequence[tuple[bytes, bytes]] = ()
    """Hops records: key, value."""


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Configuration of a lane's table."""

    capacity: int
    resident_ids_max: int
    """Above so many IDs the index stays in RocksDB."""
    max_age_ms: int = 0
    persistent: bool = True
    """False: IDs are in memory only and forgotten at every opening."""
    app: str = ""
    """The app's ID and ..."""
    address: str = ""
    """... the address: whose rings these are."""
    rules: Mapping[str, Any] = field(default_factory=dict)
    """Definition of ID, group and home, for the meta record."""
    lanes: int = 0
    """``lanes`` of the address, for the meta record."""
    promise: Promise | None = None
    """With it, ``capacity`` is ``id_cache_size_max``."""
