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
    """Number of changelog records read, including the one that is checked again."""
    seconds: float
    reused: bool
    """RocksDB was trusted; otherwise it was rebuilt from the whole changelog."""
    kept: bool = False
    """Ring and hop memory were still in memory, and only newer records were read."""


class Change(NamedTuple):
    """Effect of one batch: the records of its transaction, then :meth:`tables.table.LaneTable.apply`."""

    checked: Checked
    slots: Iterable[tuple[bytes, bytes]]
    """Ring records: key, value."""
    removed: list[bytes]
    """Keys of an earlier capacity's dead slots, which get tombstones."""
    meta: Meta
    judged: Judged = NOTHING
    hops: Sequence[tuple[bytes, bytes]] = ()
    """Hops records: key, value."""


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Configuration of a lane's table."""

    capacity: int
    resident_ids_max: int
    """Number of IDs above which the index stays in RocksDB."""
    max_age_ms: int = 0
    persistent: bool = True
    """False: IDs are only in memory, and each opening forgets them."""
    app: str = ""
    """ID of the app that owns the rings."""
    address: str = ""
    rules: Mapping[str, Any] = field(default_factory=dict)
    """Definition of ID, group and home, for the meta record."""
    lanes: int = 0
    """``lanes`` of the address, for the meta record."""
    promise: Promise | None = None
    """Promise of ``id_min_age``. With it, ``capacity`` is ``id_cache_size_max``."""
