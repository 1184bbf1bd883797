"""The state of an application at one moment. Times are seconds; ages count from records' timestamps."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ringfence_client.progress.open_records import OpenRecords
from ringfence_kafka.http.probe_errors import ProbeError
from ringfence_kafka.protocol.run_result import RunResult

OPEN = "open"
NOBODY = "nobody"
"""No worker has the lane."""
UNKNOWN = "unknown"
"""A worker has it and was not heard."""


@dataclass(frozen=True, slots=True)
class FrequentId:
    """An ID with more than a tenth of a lane's duplicates of the last hour."""

    id: str
    count: int
    """Duplicates with this ID, at least."""
    duplicates: int
    parts: list[str] = field(default_factory=list)
    """Empty = it has one, or only its digest is known."""
    means: str = ""
    """Fate of the messages of a producer that sends one ID."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane of an address."""

    lane: str
    number: int
    partitions: list[int]
    """Partitions of the input that it owns."""
    state: str
    """From ``/health`` of its worker; or :data:`NOBODY`, :data:`UNKNOWN`."""
    reason: str | None
    """Why its worker does not have it open."""
    worker: str | None
    lag: int | None
    """Unprocessed offsets of all its partitions; None = not known."""
    head_age_seconds: float | None
    """Age of the oldest of them."""
    undecided_seconds: float | None
    """Age of the first record of the input whose producer has not committed; None = there is none."""
    rate: float | None
    """Messages per second in the last minute, as its worker measures; None = not known yet."""
    ring_size: int | None
    ring_capacity: int | None
    seconds_covered: float | None
    accepted: int | None
    """This and the next three: since the worker has the lane; None = not known."""
    duplicates: int | None
    unchecked: int | None
    quarantined: int | None
    waiting: int | None = None
    """The most messages that can wait: 0 if all offsets of the lag are markers."""
    folder_fault: bool = False
    """It is not open because its folder cannot be written."""
    note: str | None = None
    """IDs that are kept and forgotten since its changelog was deleted; None = it was not."""
    frequent_id: FrequentId | None = None
    """None = no ID has so many duplicates, or it is not known."""
    promise: Mapping[str, Any] | None = None
    """The promise of ``id_min_age``, and whether its ring holds it; None = there is none, or it is not known."""
    observes: bool = False
    """Its worker only marks duplicates, and lets them pass."""
    observed_duplicates: int | None = None
    """Duplicates that passed so, since the worker has the lane; None = not known."""
    unchecked_headers: list[str] = field(default_factory=list)
    """Header names of messages without an ID, the most frequent first."""
    forwarded: int | None = None
    """Records that were not at home where they arrived, since the worker has the lane; None = not known."""
    forwarding_share: float | None = None
    """Share of forwarded records of late; None = it is small."""
    forwarding_advice: str = ""
    """Advice if many records are forwarded of late; empty = few are."""
    own_rules: dict[str, str] = field(default_factory=dict)
    """Keys by which its worker goes on its own, with their values."""


@dataclass(frozen=True, slots=True)
class Address:
    """One address and its lanes."""

    address: str
    topic: str
    lanes: list[Lane]
    faults: list[str] = field(default_factory=list)
    """Faults of its topics."""
    lanes_fault: str = ""
    """Why this file does not fit its lanes; empty = it fits."""
    quarantine: OpenRecords | None = None
    """Quarantined records that nobody redrove or dropped; None = there are none, or it is not known."""

    @property
    def lag(self) -> float | None:
        """Sum of the known lags."""
        return _sum(lane.lag for lane in self.lanes)

    @property
    def rate(self) -> float | None:
        """Sum of the known rates."""
        return _sum(lane.rate for lane in self.lanes)

    @property
    def duplicates_share(self) -> float | None:
        """Share of duplicates since workers have its lanes; None = nothing was judged, or it is not known."""
        counts = [(lane.accepted or 0, lane.duplicates or 0, lane.unchecked or 0) for lane in self.lanes]
        judged = sum(map(sum, counts))
        return sum(duplicates for _, duplicates, _ in counts) / judged if judged else None

    @property
    def unchecked_share(self) -> float | None:
        """Share of messages without an ID since workers have its lanes; None as of :attr:`duplicates_share`."""
        judged = sum(
            (lane.accepted or 0) + (lane.duplicates or 0) + (lane.unchecked or 0) for lane in self.lanes
        )
        return sum(lane.unchecked or 0 for lane in self.lanes) / judged if judged else None

    @property
    def seconds_covered(self) -> float | None:
        """The least of all rings."""
        known = (lane.seconds_covered for lane in self.lanes)
        return min((seconds for seconds in known if seconds is not None), default=None)

    @property
    def fullest(self) -> Lane | None:
        """The lane with the fullest ring."""
        known = [lane for lane in self.lanes if lane.ring_capacity]
        return max(known, key=lambda lane: (lane.ring_size or 0) / (lane.ring_capacity or 1), default=None)


@dataclass(frozen=True, slots=True)
class Worker:
    """A member of the workers' group."""

    name: str
    host: str
    web: str | None
    lanes: int
    ready: bool | None
    """None = its web server does not answer, or it has none."""
    broker: str | None
    """``away`` or ``answers``."""
    state_folder: str = ""
    """Why its lanes cannot use their folders, and what it does about it; empty = they can."""
    lanes_in_memory: list[str] = field(default_factory=list)
    """The lanes of them that work with their files in memory."""
    faults: list[str] = field(default_factory=list)
    unheard: ProbeError | None = None
    """Why its web server was not heard, if that is known."""
    buffered_bytes: int | None = None
    """Memory of messages under way; None = not known."""
    buffer_limit_bytes: int | None = None
    throttled: dict[str, float] = field(default_factory=dict)
    """Seconds of the last minute that brokers delayed it because of a quota, by request."""
    limits: dict[str, list[str]] = field(default_factory=dict)
    """Address → each disagreement of live workers on a limit."""


@dataclass(frozen=True, slots=True)
class Share:
    """One partition of an accepted topic, for one consumer group."""

    partition: int
    state: str
    """State of the lease: held, draining, released; none, unreadable."""
    holder: str | None
    holder_is_member: bool | None
    waits: str | None
    """The member with the partition while another one has the lease."""
    silent_seconds: float | None
    """Since the holder wrote."""
    lag: int | None
    running: int
    head_age_seconds: float | None
    """Age of the first unfinished message; the next two are about it."""
    head_group: str | None
    head_attempts: int
    failing_group: str | None
    """Group of the message that fails for the longest; None = it has no group, or none fails."""
    failing_attempts: int
    failing_seconds: float | None
    run_group: str | None
    """Group of the message that a handler runs for the longest; None = it has no group, or none runs."""
    run_seconds: float | None
    """None = its consumer does not tell."""
    blocked: int
    """Messages with written dead letters whose groups wait."""
    blocked_group: str | None
    """Group of the first of them."""
    hot_group: str | None
    """The group with the most waiting messages, as the holder knows it."""
    hot_depth: int | None
    reason: str | None
    """Why the member with the partition does not hold it yet."""
    waiting: int | None = None
    """The most messages that can wait."""
    failing: int = 0
    """Messages that failed and are tried again."""


@dataclass(frozen=True, slots=True)
class Consumers:
    """A consumer group at an address."""

    consumer_group: str
    address: str
    """The topic, where no address has it."""
    state: str
    """Kafka's name of the group's state."""
    members: list[str]
    partitions: list[Share]
    faults: list[str] = field(default_factory=list)
    """Faults that keep its consumers from handling messages."""
    left_behind: int = 0
    """Handlers that nobody could end."""
    unheard: dict[str, ProbeError] = field(default_factory=dict)
    """Web servers that were not heard, if the reason is known."""
    buffered_bytes: int | None = None
    """Memory of messages under way in all its consumers; None = not known."""
    buffer_limit_bytes: int | None = None
    throttled: dict[str, float] = field(default_factory=dict)
    """As of a :class:`Worker`."""
    dead_letters: OpenRecords | None = None
    """Those that nobody redrove or dropped; None = there are none, or it is not known."""
    webs: list[str] = field(default_factory=list)
    """Web servers of its consumers that answer."""

    @property
    def blocked(self) -> int:
        """Messages with written dead letters whose groups wait."""
        return sum(partition.blocked for partition in self.partitions)

    @property
    def failing(self) -> int:
        """Messages that failed and are tried again."""
        return sum(partition.failing for partition in self.partitions)

    @property
    def lag(self) -> float | None:
        """Sum of the known lags."""
        return _sum(partition.lag for partition in self.partitions)

    @property
    def waiting(self) -> int:
        """The most messages that can wait."""
        return sum(partition.waiting or 0 for partition in self.partitions)

    @property
    def oldest(self) -> Share | None:
        """The partition with the oldest unfinished message."""
        known = [partition for partition in self.partitions if partition.head_age_seconds is not None]
        return max(known, key=lambda partition: partition.head_age_seconds or 0, default=None)

    @property
    def hottest(self) -> Share | None:
        """The partition with the deepest group."""
        known = [partition for partition in self.partitions if partition.hot_depth]
        return max(known, key=lambda partition: partition.hot_depth or 0, default=None)


@dataclass(frozen=True, slots=True)
class Bridge:
    """A bridge, as ``bridge status`` has it."""

    bridge: str
    source_topic: str
    target_topic: str
    state: str
    members: list[str]
    lag: int | None
    forwarded: int
    fault: str | None
    standing: list[str]
    """Lines that need a person."""
    stands: bool
    """Messages wait because of it."""
    quarantine: OpenRecords | None = None
    """As of an :class:`Address`, at the target."""


@dataclass(frozen=True, slots=True)
class LeftBridge:
    """A bridge that was removed from the configuration while messages waited."""

    bridge: str
    what: str
    do: str
    stands: bool
    """No other bridge reads its source."""


@dataclass(frozen=True, slots=True)
class LeftLetters:
    """Open dead letters of a consumer group that has no progress any more."""

    consumer_group: str
    address: str
    dead_letters: OpenRecords


@dataclass(frozen=True, slots=True)
class Finding:
    """Why something has stopped or soon will, and the fix."""

    where: str
    what: str
    do: str
    """Empty if the command says it."""
    command: str
    """Empty = none helps."""
    stands: bool
    """Messages wait because of it, until somebody acts."""


@dataclass(frozen=True, slots=True)
class Status:
    """The state of one application."""

    app: str
    bootstrap_servers: str
    at: str
    """ISO 8601, UTC."""
    workers_state: str
    """Kafka's name of the state of the workers' group."""
    workers: list[Worker]
    addresses: list[Address]
    consumers: list[Consumers]
    bridges: list[Bridge]
    faults: list[str] = field(default_factory=list)
    """Parts that could not be asked."""
    left_bridges: list[LeftBridge] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    """Faults of consumers' topics that were deleted."""
    foreign: list[str] = field(default_factory=list)
    """A line for each member of the workers' group that is not a worker."""
    left_letters: list[LeftLetters] = field(default_factory=list)
    last_run: RunResult | None = None
    """The last reconciliation run; None = none ran in the last days, or it is not known."""


def _sum(numbers: Iterable[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
