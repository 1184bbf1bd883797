"""Checks whether this worker can write its state, and moves lanes whose folder it cannot write.

After a minute other workers get these lanes. Without another worker, RocksDB keeps its files in memory, restored from the changelog.
"""

import logging
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from ringfence_kafka import clock
from ringfence_kafka.wording import first_of
from tables.rocksdb.errors import StateFolderError, unwritable

log: Final = logging.getLogger("ringfence.worker")

GIVE_UP_S: Final = 60.0
"""Time after which other workers get the lanes, if there are any, in seconds."""
USABLE_S: Final = 60.0
"""Time that the folder must be writable before lanes use it again, in seconds. Each relapse doubles it, up to :data:`USABLE_MAX_S`."""
USABLE_MAX_S: Final = 3_600.0
SHOWN_MAX: Final = 4
"""Maximum number of lanes that the text of a cause names."""
RECENT_S: Final = 15.0
"""Time without a failure before the folder is checked, in seconds. Lanes that cannot open try again more often."""
PROBE_BYTES: Final = 1 << 20
IDS_IN_MEMORY_MAX: Final = 2_000_000
"""Maximum number of IDs in rings whose files are in memory; an ID uses about 150 bytes."""


class FolderUsableError(Exception):
    """The folder is writable again: a lane with files in memory reopens."""


class StateFolder:
    """State folders of this worker's lanes."""

    def __init__(
        self,
        others: Callable[[], Awaitable[bool]],
        tell_group: Callable[[bool], None],
        ids_in_memory: Callable[[], int],
        now: Callable[[], float] = clock.now,
    ) -> None:
        """Create the record of failures. All folders count as usable.

        ``others``: returns whether another worker can take lanes; ``tell_group``: called with whether this worker is unusable, and the group then
        assigns lanes again; ``ids_in_memory``: returns the total capacity of the rings whose files are in memory; ``now``: clock, in seconds.
        """
        self._others = others
        self._tell_group = tell_group
        self._ids_in_memory = ids_in_memory
        self._now = now
        self._failing: dict[str, StateFolderError] = {}
        """Failure of each lane that cannot use its folder, by lane."""
        self._since = self._failed_at = 0.0
        """Times of the first and of the latest of these failures."""
        self._usable_since: float | None = None
        self._usable_s = USABLE_S
        self._consequence = ""
        """Reaction of this worker, for status; empty if all folders are usable."""
        self.unusable = False
        """Whether the group knows that this worker cannot hold lanes."""

    @property
    def fault(self) -> str:
        """Problem, for status: each cause once, with its lanes; empty if all folders are usable."""
        reason = self._reason
        return f"{reason} ({self._consequence})" if reason and self._consequence else self._consequence

    @property
    def _reason(self) -> str:
        causes: dict[str, list[str]] = {}
        for lane, item in self._failing.items():
            causes.setdefault(item.cause, []).append(lane)
        return "; ".join(self._error_text(sorted(lanes)) for lanes in causes.values())

    def _error_text(self, lanes: list[str]) -> str:
        """Return the error text of RocksDB or the operating system for lanes with the same cause."""
        first = self._failing[lanes[0]]
        if len(lanes) == 1:
            return f"lane {lanes[0]}: {first}"
        folders = f"{len(lanes)} folders in {first.folder.parent}"
        return f"lanes {first_of(lanes, SHOWN_MAX)}: {str(first).replace(str(first.folder), folders, 1)}"

    async def failed(self, lane: str, ids: int, error: StateFolderError) -> bool:
        """Record that a lane cannot use its folder. Return whether it may keep its files in memory. ``ids``: capacity of its ring."""
        self._failed_at = self._now()
        if not self._failing:
            self._since = self._failed_at
        self._failing[lane] = error
        self._usable_since = None
        others = await self._others()
        room = self._ids_in_memory() + ids <= IDS_IN_MEMORY_MAX
        self._consequence = _consequence(others=others, room=room)
        if others or not room:
            return False
        log.warning(
            "lane %s keeps its state in memory, because its folder cannot be used (%s). No message is lost: the changelog has all IDs, and the "
            "next opening restores them from there",
            lane, error,
        )  # fmt: skip
        return True

    def on_disk(self, lane: str) -> None:
        """Record that a lane is open and uses its folder."""
        self._failing.pop(lane, None)
        if not self._failing and not self.unusable:
            self._consequence = ""

    async def check(self) -> bool:
        """Release the lanes to other workers, or take lanes again. Return whether the lanes should try their folders again."""
        if not self._failing and not self.unusable:
            return False
        now = self._now()
        if now - self._failed_at < RECENT_S or not all(
            usable(value.folder) for value in self._failing.values()
        ):
            self._usable_since = None
            if not self.unusable and now - self._since >= GIVE_UP_S and await self._others():
                self.unusable = True
                log.error(
                    "lanes cannot use their folders for %.0f s, and other workers take all lanes of this one until they can: %s",
                    now - self._since, self._reason,
                )  # fmt: skip
                self._consequence = (
                    "other workers have all lanes of this one until its folders can be used for a minute"
                )
                self._tell_group(True)
            return False
        if self._usable_since is None:
            self._usable_since = now
        if now - self._usable_since < self._usable_s:
            return False
        log.info("lanes can use their folders again")
        self._usable_s = min(2 * self._usable_s, USABLE_MAX_S)
        self._failing.clear()
        self._consequence = ""
        if self.unusable:
            self.unusable = False
            self._tell_group(False)
        return True


def require_usable(folder: Path) -> None:
    """Raise StateFolderError if a temporary file cannot be written into the folder."""
    if fault := _fault(folder):
        raise unwritable(folder, fault)


def usable(folder: Path) -> bool:
    """Return whether a file can be written into the folder now."""
    return not _fault(folder)


def _fault(folder: Path) -> str:
    """Return the error that prevents writing into the folder; empty if writing works."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(PROBE_BYTES))
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _consequence(*, others: bool, room: bool) -> str:
    if others:
        return f"lanes go to other workers after {GIVE_UP_S:.0f} s"
    if room:
        return "lanes keep their state in memory, and no message is lost"
    return "rings are too large to be kept in memory, and their lanes wait"
