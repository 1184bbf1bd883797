"""Finished runs with cut, results and accepted IDs, for later runs.

A run is finished when ``<state_dir>/nights/<number>.json`` exists. The run writes this file last, by a
rename. The next run removes everything else that a crashed run left.
"""

import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, replace
from typing import Any, Final, Self

from reconcile.run.history.cut import Position, TopicCut
from reconcile.run.history.layout import (
    DONE,
    RUNS,
    SEEN,
    file_of,
    forgotten_of,
    ids_folder,
    results_folder,
    seen_of,
)
from reconcile.run.history.renames import called
from reconcile.spark.files import Files
from ringfence_kafka.errors import ConfigurationError, PrerequisiteError

FORMAT: Final = 8  # of a run's file; files with another format are refused

LaneCounts = dict[str, dict[int, int]]  # address → lane → number of IDs


@dataclass(slots=True)
class Run:
    """One finished run."""

    number: int
    base: int | None  # run from whose end it continued; None = start of the logs
    date: str  # day of its start, UTC
    verdict: str
    _: KW_ONLY
    positions: dict[str, Position] = field(default_factory=dict)
    accepted: LaneCounts = field(default_factory=dict)
    known: LaneCounts = field(default_factory=dict)  # IDs accepted since evidence was last missing
    complete: dict[str, bool] = field(default_factory=dict)  # address → whether all IDs of its rings are kept
    summary: dict[str, Any] = field(default_factory=dict)
    acknowledged: bool = False
    held: LaneCounts = field(default_factory=dict)  # IDs since the ring was new, or emptied by order
    consumed: LaneCounts = field(default_factory=dict)  # end of each lane in its forward topic
    earliest: dict[str, int] = field(default_factory=dict)  # address → lowest timestamp of its inputs, ms
    rules: dict[str, dict[str, Any]] = field(default_factory=dict)  # address → rules of the last run with it
    whole_since: dict[str, int] = field(default_factory=dict)
    """Address → first run since which no accepted ID is missing."""
    app: str = ""  # app.id
    left: dict[str, int] = field(default_factory=dict)  # address → last run with it, if not this one
    events_from: dict[str, int] = field(default_factory=dict)
    """Address → offset in the journal; earlier events concern a deleted input."""
    cluster: str = ""  # Kafka's ID of the cluster; empty = unknown
    leaves: dict[str, int] = field(default_factory=dict)  # folder → its Parquet files, for later runs

    @property
    def settled(self) -> bool:
        """Whether the next run may begin where this one ended."""
        return self.verdict == "clean" or self.acknowledged

    @property
    def inputs(self) -> int:
        """Number of inputs of all addresses."""
        return sum(value["input"] for value in self.summary.get("addresses", {}).values())

    def capacity(self, address: str) -> int:
        """Return the ring size of an address in this run; 0 = the address was not judged."""
        kept: dict[str, Any] = self.summary.get("addresses", {}).get(address, {})
        return int(kept.get("ring", {}).get("capacity", 0))

    def judged(self, topic: TopicCut) -> bool:
        """Return whether the run judged this topic, and not a deleted one of the same name."""
        position = self.positions.get(topic.key)
        return position is not None and position.topic_id == topic.topic_id

    def judged_another(self, topic: TopicCut) -> bool:
        """Return whether the run judged a deleted topic of the same name."""
        return (topic.key) in self.positions and not self.judged(topic)

    def left_by(self, address: str) -> int:
        """Return the run whose results hold the address's waiting state."""
        return self.left.get(address, self.number)

    def own_rules(self) -> dict[str, dict[str, Any]]:
        """Return rules of the addresses that this run judged itself."""
        return {name: rule for name, rule in self.rules.items() if self.left_by(name) == self.number}

    def to_json(self) -> str:
        """Return the text of the run's file."""
        kept = asdict(self)
        del kept["acknowledged"]
        return json.dumps({"format": FORMAT, **kept})

    @classmethod
    def from_json(cls, text: str, *, acknowledged: bool) -> Self:
        """Parse the text of a run's file.

        Raises:
            ConfigurationError: Another version wrote the file.
            ValueError: The file is damaged.
        """
        kept = json.loads(text)
        if not isinstance(kept, dict) or "format" not in kept:
            raise ValueError("no run")
        if (found := kept.pop("format")) != FORMAT:
            raise ConfigurationError(
                f"reconcile.state_dir has a run of format {found!r}, and this version reads format "
                f"{FORMAT}: use the version that wrote it, or name another reconcile.state_dir. The next "
                "run then begins at the start of the logs, and deleted records are reported as GAP"
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
    """All finished runs of a state folder."""

    files: Files
    finished: dict[int, Run] = field(default_factory=dict)
    former: Mapping[str, str] = field(default_factory=dict)  # address → its name in the runs, if that differs

    @classmethod
    def load(cls, files: Files) -> Self:
        """Read the runs of a folder.

        Raises:
            ConfigurationError: Another version wrote them.
            PrerequisiteError: A file is damaged.
        """
        names = set(files.names(RUNS))
        found = cls(files)
        for name in sorted(name for name in names if name.endswith(DONE)):
            seen = name.removesuffix(DONE) + SEEN in names
            try:
                run = Run.from_json(files.read_text(f"{RUNS}/{name}"), acknowledged=seen)
            except ValueError as error:
                raise PrerequisiteError(
                    f"{files.at(RUNS, name)} is damaged: restore it; without a backup remove it, if it is the last "
                    "(it is judged again), else begin with another reconcile.state_dir"
                ) from error
            found.finished[run.number] = run
        return found

    @property
    def last(self) -> Run | None:
        """Latest run with any verdict."""
        return self.finished[max(self.finished)] if self.finished else None

    @property
    def next_number(self) -> int:
        """Number of the next run."""
        return max(self.finished, default=0) + 1

    def rename(self, former: Mapping[str, str]) -> None:
        """Show the runs under the present names of addresses. ``former``: address → its name in the runs."""
        self.former = former

    def belong_to(self, app: str, cluster: str = "") -> None:
        """Raise ConfigurationError if the runs are of another application or cluster (empty = not checked)."""
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
                f"{self.files.root} has the runs of the Kafka cluster {last.cluster}, and "
                f"kafka.bootstrap_servers leads to {cluster}: give each a reconcile.state_dir, or an "
                "app.data_dir, of its own. If this cluster replaced that one, move the folder away; the "
                "next run begins at the start of the logs"
            )

    def settled_base(self) -> Run | None:
        """Return the base of the next run: the last clean or acknowledged run."""
        last = self.last
        return None if last is None else self._get(last.number if last.settled else last.base)

    def seen_since(self, base: Run | None) -> dict[str, list[Position]]:
        """Return positions by topic of runs after the base. They prove which records existed."""
        found: dict[str, list[Position]] = {}
        for number, run in self.finished.items():
            if base is None or number > base.number:
                for topic, position in run.positions.items():
                    found.setdefault(topic, []).append(position)
        return found

    def again(self, positions: Mapping[str, Position], rules: Mapping[str, Mapping[str, Any]]) -> Run | None:
        """Return the last run if it is to be repeated: same positions, same rules, not acknowledged."""
        last = self.last
        if last is None or last.acknowledged or last.own_rules() != rules:
            return None
        there = {topic: position for topic, position in last.positions.items() if topic in positions}
        return last if _ends(there) == _ends(positions) else None

    def base_of(self, run: Run) -> Run | None:
        """Return the base of a run."""
        return self._get(run.base)

    def chain(self, run: Run | None) -> list[Run]:
        """Return a run, its base, the base of that, and so on."""
        found: list[Run] = []
        while run is not None:
            found.append(run)
            run = self._get(run.base)
        return found

    def since(self, run: Run | None, today: str, days: int) -> list[Run]:
        """Return the runs of :meth:`chain` that began within the last ``days`` days."""
        return [run for run in self.chain(run) if run.date >= days_before(today, days)]

    def _get(self, number: int | None) -> Run | None:
        run = None if number is None else self.finished.get(number)
        return None if run is None else called(run, self.former)

    def commit(self, run: Run) -> None:
        """Make a run finished and durable."""
        for folder in (results_folder(run.number), ids_folder(run.date, run.number)):
            self.files.sync(folder)
        # An operator may have removed a damaged run with this number. Its acknowledgement is not one of this
        # run.
        for beside in (seen_of(run.number), forgotten_of(run.number)):
            self.files.remove(beside)
        self.files.write_text(file_of(run.number), run.to_json())
        self.finished[run.number] = run

    def acknowledge(self) -> Run | None:
        """Acknowledge the last run; None = nothing to acknowledge."""
        last = self.last
        if last is None or last.settled:
            return None
        self.files.write_text(
            seen_of(last.number), f"{dt.datetime.now(dt.UTC).isoformat(timespec='seconds')}\n"
        )
        self.finished[last.number] = seen = replace(last, acknowledged=True)
        return seen


def _ends(positions: Mapping[str, Position]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {topic: (position.topic_id, position.ends) for topic, position in positions.items()}


def days_before(today: str, days: int) -> str:
    """Return the date ``days`` days before another."""
    return (dt.date.fromisoformat(today) - dt.timedelta(days=days)).isoformat()


def added(several: Iterable[LaneCounts]) -> LaneCounts:
    """Return the sums of several counts."""
    total: dict[str, Counter[int]] = {}
    for counts in several:
        for address, lanes in counts.items():
            total.setdefault(address, Counter()).update(lanes)
    return {address: dict(lanes) for address, lanes in total.items()}
