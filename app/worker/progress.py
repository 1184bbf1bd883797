"""A log line each minute: verdicts, lag, open lanes."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from agents.lane.lane import LaneState
from agents.worker.lanes import Lanes

EVERY_S: Final = 60.0


class ProgressLine:
    """Formats the line, and remembers the counts of the last one."""

    def __init__(self, url: str) -> None:
        """Take the ``url`` of the worker's page; empty = no page."""
        self._url = url
        self._before: Counter[str] = Counter()

    def next(self, lanes: Lanes, seconds: float) -> str:
        """Return the line. ``seconds``: time since the last one."""
        open_lanes = sum(lanes.health.state_of(lane)[0] is LaneState.OPEN for lane in lanes.lanes)
        waiting = [lanes.lags.of(lane.key) for lane in lanes.lanes]
        waiting += [lanes.lags.of(half) for half in lanes.health.halves]
        totals = sum(lanes.totals.counts(lanes.lanes).values(), Counter())
        return self.line(totals, seconds, (open_lanes, len(waiting)), waiting)

    def line(
        self, totals: Mapping[str, int], seconds: float, lanes: tuple[int, int], waiting: list[int | None]
    ) -> str:
        """Return the line. ``lanes``: open lanes and all; ``waiting``: lag of each lane."""
        done = {name: count - self._before[name] for name, count in totals.items()}
        self._before = Counter(totals)
        verdicts = [
            f"{done.get('accepted', 0) + done.get('unchecked', 0):,} accepted",
            f"{done.get('duplicates', 0):,} duplicates",
        ]
        verdicts += [
            f"{done[name]:,} {name}" for name in ("forwarded", "quarantined", "gap_records") if done.get(name)
        ]
        lag = f"lag {sum(filter(None, waiting)):,}"
        if unknown := waiting.count(None):
            lag += f" and unknown of {unknown} lanes"
        page = f"; {self._url}/" if self._url else ""
        return f"in {seconds:.0f} s {', '.join(verdicts)}; {lag}; {lanes[0]} of {lanes[1]} lanes open{page}"
