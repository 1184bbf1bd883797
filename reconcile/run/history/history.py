"""What a night leaves to the next: its cut, its results, and the IDs that it saw accepted.

``<state_dir>/nights/<number>.json`` is written last, by a rename: a night is finished when that file is there, and
whatever else a crashed run left is removed by the next one.

::

    nights/000003.json             a finished night: cut, verdict, summary
    nights/000003.acknowledged     a person has seen its anomalies: the next night begins where it ended
    nights/000003.forgotten        the folders of its IDs that no later night can need: they were removed on purpose
    results/000003/                Parquet: anomalies, counts, resends, and what the next night needs (inputs, ahead, hops)
    accepted/date=…/night=3/       Parquet: accepted IDs, a folder an address
    scratch/                       of the run under way
"""

import datetime as dt
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Self

from reconcile.run.history.cut import Position, TopicCut
from reconcile.run.history.renames import called
from reconcile.spark.files import Files
from ringfence_kafka.errors import ConfigurationError, PrerequisiteError

FORMAT: Final = 8
"""Of a run's file; another one is refused."""
NIGHTS: Final = "nights"
RESULTS: Final = "results"
ACCEPTED: Final = "accepted"
SCRATCH: Final = "scratch"
_DONE: Final = ".json"
_SEEN: Final = ".acknowledged"
_FORGOTTEN: Final = ".forgotten"

LaneCounts = dict[str, dict[int, int]]
"""Address → lane → IDs."""


@dataclass(slots=True)
class Run:
    """One finished night."""

    number: int
    base: int | None
    """The night that it went on from; None = from the beginning."""
    date: str
    """The day on which it began, UTC."""
    verdict: str
    positions: dict[str, Position]
    accepted: LaneCounts
    """IDs that were accepted in it."""
    known: LaneCounts
    """IDs since the last evidence that was missing."""
    complete: dict[str, bool]
    """Address → all IDs that its rings may hold are kept."""
    summary: dict[str, Any]
    acknowledged: bool = False
    held: LaneCounts = field(default_factory=dict)
    """IDs since the ring was new, or emptied by order: what it holds, if it is that large."""
    consumed: LaneCounts = field(default_factory=dict)
    """Not IDs: the offset up to where each lane had consumed the forward topic."""
    earliest: dict[str, int] = field(default_factory=dict)
    """Address → timestamp of the earliest of its inputs, ms."""
    rules: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Address → what it was judged by, or on the last night that had it."""
    whole_since: dict[str, int] = field(default_factory=dict)
    """Address → the first night from which on no accepted ID is missing."""
    app: str = ""
    """``app.id``."""
    left: dict[str, int] = field(default_factory=dict)
    """Address → the night whose results have what waits for the next one: the last that had it."""
    events_from: dict[str, int] = field(default_factory=dict)
    """Address → offset in the journal: what stands below it is about an input that was deleted."""
    cluster: str = ""
    """Kafka's ID of the cluster; empty = it has none."""
    leaves: dict[str, int] = field(default_factory=dict)
    """Folder → its Parquet files, of what later runs read."""

    @property
    def settled(self) -> bool:
        """Nothing of it has to be looked at again."""
        return self.verdict == "clean" or self.acknowledged

    @property
    def inputs(self) -> int:
        """How many it judged."""
        return sum(value["input"] for value in self.summary.get("addresses", {}).values())

    def capacity(self, address: str) -> int:
        """``id_cache_size`` of then."""
        kept: dict[str, Any] = self.summary.get("addresses", {}).get(address, {})
        return int(kept.get("ring", {}).get("capacity", 0))

    def judged(self, topic: TopicCut) -> bool:
        """Whether it was this very topic, and none that was deleted since and had its name."""
        position = self.positions.get(topic.key)
        return position is not None and position.topic_id == topic.topic_id

    def judged_another(self, topic: TopicCut) -> bool:
        """Whether it was one that was deleted since and had its name."""
        return (topic.key) in self.positions and not self.judged(topic)

    def left_by(self, address: str) -> int:
        """The night whose results have what waits for the next one."""
        return self.left.get(address, self.number)

    def own_rules(self) -> dict[str, dict[str, Any]]:
        """Of the addresses that it judged itself."""
        return {name: rule for name, rule in self.rules.items() if self.left_by(name) == self.number}

    def to_json(self) -> str:
        """As it is kept."""
        kept = asdict(self)
        del kept["acknowledged"]
        return json.dumps({"format": FORMAT, **kept})

    @classmethod
    def from_json(cls, text: str, *, acknowledged: bool) -> Self:
        """Read it again.

        Raises:
            ConfigurationError: another version wrote it.
            ValueError: it is damaged.
        """
        kept = json.loads(text)
        if not isinstance(kept, dict) or "format" not in kept:
            raise ValueError("no night")
        if (found := kept.pop("format")) != FORMAT:
            raise ConfigurationError(
                f"reconcile.state_dir has a run of format {found!r}, and this version reads format {FORMAT}: use the version that wrote "
                "it, or name another reconcile.state_dir: the next run begins at the start of the logs, and what retention has taken of "
                "them is GAP"
            )
        if missing := {field.name for field in fields(cls)} - {"acknowledged"} - kept.keys():
            raise ValueError(f"a run without {', '.join(sorted(missing))}")
        kept["positions"] = {
            topic: Position(item["topic_id"], tuple(item["origins"]), tuple(item["ends"]))
            for topic, item in kept["positions"].items()
        }
        for name in ("accepted", "known", "held", "consumed"):
            kept[name] = {
                address: {int(lane): count for lane, count in lanes.items()}
                for address, lanes in kept[name].items()
            }
        return cls(**kept, acknowledged=acknowledged)


@dataclass(slots=True)
class RunHistory:
    """All finished ones."""

    files: Files
    finished: dict[int, Run] = field(default_factory=dict)
    former: Mapping[str, str] = field(default_factory=dict)
    """Address → what it is called in them; only those that have another name now."""

    @classmethod
    def load(cls, files: Files) -> Self:
        """Read them.

        Raises:
            ConfigurationError: another version wrote them.
            PrerequisiteError: one cannot be read.
        """
        names = set(files.names(NIGHTS))
        found = cls(files)
        for name in sorted(names):
            if name.endswith(_DONE):
                seen = name.removesuffix(_DONE) + _SEEN in names
                try:
                    night = Run.from_json(files.read(f"{NIGHTS}/{name}"), acknowledged=seen)
                except ValueError as error:
                    raise PrerequisiteError(
                        f"{files.at(NIGHTS, name)} is damaged: restore it; without a backup remove it, if it is the last "
                        "(it is judged again), else begin with another reconcile.state_dir"
                    ) from error
                found.finished[night.number] = night
        return found

    @property
    def last(self) -> Run | None:
        """The latest, whatever came of it."""
        return self.finished[max(self.finished)] if self.finished else None

    @property
    def next_number(self) -> int:
        """Of the night to come."""
        return max(self.finished, default=0) + 1

    def belong_to(self, app: str, cluster: str = "") -> None:
        """Make sure that they do.

        Args:
            app: ``app.id``.
            cluster: Kafka's ID of the cluster; empty = not known, or it has none.

        Raises:
            ConfigurationError: they are of another application, or another cluster.
        """
        last = self.last
        if last is None:
            return
        if last.app != app:
            raise ConfigurationError(
                f"{self.files.root} has the runs of app.id = {last.app!r}, and this is {app!r}: give each a "
                "reconcile.state_dir, or an app.data_dir, of its own"
            )
        if last.cluster and cluster and last.cluster != cluster:
            raise ConfigurationError(
                f"{self.files.root} has the runs of the Kafka cluster {last.cluster}, and kafka.bootstrap_servers leads to "
                f"{cluster}: give each a reconcile.state_dir, or an app.data_dir, of its own; where this cluster has replaced "
                "that one, move the folder away: the next run begins at the start of the logs"
            )

    def settled_base(self) -> Run | None:
        """Where the next night begins: the last that was clean or acknowledged."""
        last = self.last
        return None if last is None else self._get(last.number if last.settled else last.base)

    def seen_since(self, base: Run | None) -> dict[str, list[Position]]:
        """Return how far runs after this one read each topic. Nobody acknowledged them; they still prove what was there."""
        found: dict[str, list[Position]] = {}
        for number, night in self.finished.items():
            if base is None or number > base.number:
                for topic, position in night.positions.items():
                    found.setdefault(topic, []).append(position)
        return found

    def again(self, positions: Mapping[str, Position], rules: Mapping[str, Mapping[str, Any]]) -> Run | None:
        """The last night, if nothing has moved since and nobody acknowledged it: this is that night once more.

        Args:
            positions: Where this one would end.
            rules: Those of its addresses.
        """
        last = self.last
        if last is None or last.acknowledged or last.own_rules() != rules:
            return None
        there = {topic: position for topic, position in last.positions.items() if topic in positions}
        return last if _ends(there) == _ends(positions) else None

    def base_of(self, night: Run) -> Run | None:
        """What it went on from."""
        return self._get(night.base)

    def chain(self, night: Run | None) -> list[Run]:
        """A night and all that it went on from, the latest first."""
        found: list[Run] = []
        while night is not None:
            found.append(night)
            night = self._get(night.base)
        return found

    def since(self, night: Run | None, today: str, days: int) -> list[Run]:
        """A night and those that it went on from, as far as results are kept for so many days; the latest first."""
        return [run for run in self.chain(night) if run.date >= days_before(today, days)]

    def _get(self, number: int | None) -> Run | None:
        night = None if number is None else self.finished.get(number)
        return None if night is None else called(night, self.former)

    def commit(self, night: Run) -> None:
        """Finish it: from now on it is there, and all that it stands for, also when the machine stops."""
        for folder in (results_folder(night.number), ids_folder(night.date, night.number)):
            self.files.settle(folder)
        # One of its number that was damaged, and removed, may have been acknowledged: nobody has looked at this one.
        for beside in (seen_of(night.number), forgotten_of(night.number)):
            self.files.remove(beside)
        self.files.write(file_of(night.number), night.to_json())
        self.finished[night.number] = night

    def acknowledge(self) -> Run | None:
        """The last night has been looked at; None if there is nothing to look at."""
        last = self.last
        if last is None or last.settled:
            return None
        self.files.write(seen_of(last.number), f"{dt.datetime.now(dt.UTC).isoformat(timespec='seconds')}\n")
        last.acknowledged = True
        return last


def _ends(positions: Mapping[str, Position]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {topic: (position.topic_id, position.ends) for topic, position in positions.items()}


def days_before(today: str, days: int) -> str:
    """As nights have it."""
    return (dt.date.fromisoformat(today) - dt.timedelta(days=days)).isoformat()


def added(several: Iterable[LaneCounts]) -> LaneCounts:
    """The sums."""
    total: LaneCounts = {}
    for counts in several:
        for address, lanes in counts.items():
            sums = total.setdefault(address, {})
            for lane, count in lanes.items():
                sums[lane] = sums.get(lane, 0) + count
    return total


def file_of(number: int) -> str:
    """Of a night: it is finished when that is there."""
    return f"{NIGHTS}/{_name(number)}{_DONE}"


def seen_of(number: int) -> str:
    """Return the file that says when a run was acknowledged."""
    return f"{NIGHTS}/{_name(number)}{_SEEN}"


def forgotten_of(number: int) -> str:
    """Says which of its folders were removed on purpose."""
    return f"{NIGHTS}/{_name(number)}{_FORGOTTEN}"


def results_folder(number: int) -> str:
    """Of a night."""
    return f"{RESULTS}/{_name(number)}"


def ids_folder(date: str, number: int) -> str:
    """Of the IDs that a night saw accepted."""
    return f"{ACCEPTED}/date={date}/night={number}"


def _name(number: int) -> str:
    return f"{number:06d}"
