"""Records of the log lines that name a GAP, as operators see them. Logging itself is off while worlds run."""

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from tests.simulator.loop import ProcessLoop

_STRETCH: Final = re.compile(
    r"GAP: (?:offsets (?P<first>\d+) to (?P<last>\d+) of )?(?P<topic>[\w.-]+)/(?P<partition>\d+)"
    r"(?: begins at (?P<begins>\d+), (?:and|but) \S+ has (?:finished it only up to (?P<finished>\d+)|neither)|/(?P<one>\d+) is gone)?"
)


class Gap(NamedTuple):
    """Offsets that a log line reports as gone."""

    topic: str
    partition: int
    first: int
    end: int

    def names(self, topic: str, partition: int, offset: int) -> bool:
        return (self.topic, self.partition) == (topic, partition) and self.first <= offset < self.end


def gap(line: str) -> Gap | None:
    found = _STRETCH.search(line)
    if found is None:
        return None
    if found["first"] is not None:
        first, end = int(found["first"]), int(found["last"]) + 1
    elif found["begins"] is not None:
        first, end = int(found["finished"] or 0), int(found["begins"])
    elif found["one"] is not None:
        first, end = int(found["one"]), int(found["one"]) + 1
    else:
        return None
    return Gap(found["topic"], int(found["partition"]), first, end)


def in_vain(gaps: Iterable[Gap], topic: str, partition: int, eaten: set[int]) -> Iterable[str]:
    """Yield a line for each GAP that was logged although nothing was gone that anybody needed."""
    for gap in gaps:
        if (gap.topic, gap.partition) == (topic, partition) and eaten.isdisjoint(range(gap.first, gap.end)):
            yield f"GAP in vain: {gap} was said, and retention has deleted nothing of it that was needed"


class Ear:
    """Stands in for a module's logger."""

    def __init__(self, loop: Any) -> None:
        self._loop = loop

    def error(self, text: str, *args: object, **_: object) -> None:
        loop = self._loop()
        if "GAP" in text and isinstance(loop, ProcessLoop) and (found := gap(text % args)) is not None:
            loop.process.gaps.append(found)

    warning = error

    def info(self, *_: object, **__: object) -> None:
        """Discard the line."""

    debug = exception = info
