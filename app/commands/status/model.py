"""State of an application at one moment. Times are in seconds; ages count from records' timestamps."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ringfence_client.progress.open_records import OpenRecords
from ringfence_kafka.http.probe_errors import ProbeError
from ringfence_kafka.protocol.run_result import RunResult

OPEN = "open"
NOBODY = "nobody"
"""State of a lane without a worker."""
UNKNOWN = "unknown"
"""State of a lane whose worker did not answer."""


@dataclass(frozen=True, slots=True)
class FrequentId:
    """ID with more than a tenth of a lane's duplicates in the last hour."""

    id: str
    count: int
    """Lower bound of the duplicates with this ID."""
    duplicates: int
    parts: list[str] = field(default_factory=list)
    """Parts of a composed ID; empty = a single part, or only a digest is known."""
    means: str = ""
    """Explanation: the fate of a producer's messages if it always sends the same ID."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One lane of an address."""

    lane: str
    number: int
    partitions: list[int]
    """Input partitions of the lane."""
    state: str
    """State from ``/health`` of its worker, or :data:`NOBODY`, or :data:`UNKNOWN`."""
    reason: str | None
    """Reason why its worker has not opened it."""
    worker: str | None
    lag: int | None
    """Unprocessed offsets of all its partitions; None = unknown."""
    head_age_seconds: float | None
    """Age of the oldest unprocessed message."""
    undecided_seconds: float | None
    """Age of the first input record in an open transaction; None = no open transaction."""
    rate: float | None
    """Messages per second in the last minute, measured by its worker; None = unknown yet."""
    ring_size: int | None
    ring_capacity: int | None
    seconds_covered: float | None
    accepted: int | None
    """Number since the worker has the lane, like the next three; None = unknown."""
    duplicates: int | None
    unchecked: int | None
    quarantined: int | None
    waiting: int | None = None
    """Upper bound of the waiting messages: 0 if the lag has only transaction markers."""
    folder_fault: bool = False
    """Whether it is not open because its folder cannot be written."""
    note: str | None = None
    """IDs kept and forgotten after its changelog was deleted; None = it was not deleted."""
    frequent_id: FrequentId | None = None
    """None = no such ID, or unknown."""
    promise: Mapping[str, Any] | None = None
    """The promise of ``id_min_age``, and whether its ring holds it; None = no promise, or unknown."""
    observes: bool = False
    """Whether its worker only marks duplicates, and lets them pass."""
    observed_duplicates: int | None = None
    """Number of duplicates that passed since the worker has the lane; None = unknown."""
    unchecked_headers: list[str] = field(default_factory=list)
    """Header names of messages without an ID, the most frequent first."""
    forwarded: int | None = None
    """Number of records forwarded to another home since the worker has the lane; None = unknown."""
    forwarding_share: float | None = None
    """Recent share of forwarded records; None = small."""
    forwarding_advice: str = ""
    """Advice if many records were forwarded recently; empty = few were."""
    own_rules: dict[str, str] = field(default_factory=dict)
    """Keys for which its worker uses the value of its own file."""
    gap_records: int = 0
    """Number of records that were deleted unprocessed since the worker has the lane."""

    @property
    def judged(self) -> int:
        """Number of messages with a verdict since the worker has the lane."""
        return (self.accepted or 0) + (self.duplicates or 0) + (self.unchecked or 0)


@dataclass(frozen=True, slots=True)
class Address:
    """One address and its lanes."""

    address: str
    topic: str
    lanes: list[Lane]
    faults: list[str] = field(default_factory=list)
    """Problems of its topics."""
    lanes_fault: str = ""
    """Reason why this file does not fit its lanes; empty = it fits."""
    quarantine: OpenRecords | None = None
    """Open quarantined records; None = no open records, or unknown."""
    chain_start: str = ""
    """First address of the chain that feeds this one; empty = producers write its input."""

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
        """Share of duplicates since workers have its lanes; None = nothing was judged, or unknown."""
        judged = sum(lane.judged for lane in self.lanes)
        return sum(lane.duplicates or 0 for lane in self.lanes) / judged if judged else None

    @property
    def unchecked_share(self) -> float | None:
        """Share of messages without an ID, counted and unknown as for :attr:`duplicates_share`."""
        judged = sum(lane.judged for lane in self.lanes)
        return sum(lane.unchecked or 0 for lane in self.lanes) / judged if judged else None

    @property
    def seconds_covered(self) -> float | None:
        """Shortest covered time of its rings, in seconds."""
        known = (lane.seconds_covered for lane in self.lanes)
        return min((seconds for seconds in known if seconds is not None), default=None)

    @property
    def fullest(self) -> Lane | None:
        """Lane with the fullest ring."""
        known = [lane for lane in self.lanes if lane.ring_capacity]
        return max(known, key=lambda lane: (lane.ring_size or 0) / (lane.ring_capacity or 1), default=None)


@dataclass(frozen=True, slots=True)
class Worker:
    """Member of the workers' group."""

    name: str
    host: str
    web: str | None
    lanes: int
    ready: bool | None
    """None = its web server does not answer, or is off."""
    broker: str | None
    """``away`` or ``answers``."""
    state_folder: str = ""
    """Reason why its lanes cannot use their folders, and its reaction; empty = they can."""
    lanes_in_memory: list[str] = field(default_factory=list)
    """Lanes of these that run with their files in memory."""
    faults: list[str] = field(default_factory=list)
    unheard: ProbeError | None = None
    """Reason why its web server was not readable, if known."""
    buffered_bytes: int | None = None
    """Memory of messages in flight; None = unknown."""
    buffer_limit_bytes: int | None = None
    throttled: dict[str, float] = field(default_factory=dict)
    """Request → seconds in the last minute by which brokers delayed it because of a quota."""
    limits: dict[str, list[str]] = field(default_factory=dict)
    """Address → disagreements of live workers on limits."""


@dataclass(frozen=True, slots=True)
class Share:
    """One partition of an accepted topic, for one consumer group."""

    partition: int
    state: str
    """State of the lease: held, draining or released; else none or unreadable."""
    holder: str | None
    holder_is_member: bool | None
    waits: str | None
    """Member that is assigned the partition while another one has the lease."""
    silent_seconds: float | None
    """Time since the holder's last write."""
    lag: int | None
    running: int
    head_age_seconds: float | None
    """Age of the first unfinished message, whose group and attempts follow."""
    head_group: str | None
    head_attempts: int
    failing_group: str | None
    """Group of the message that has failed for the longest time; None = no group, or no failure."""
    failing_attempts: int
    failing_seconds: float | None
    run_group: str | None
    """Group of the message that a handler has run longest; None = no group, or none runs."""
    run_seconds: float | None
    """None = its consumer does not report it."""
    blocked: int
    """Messages with written dead letters whose groups wait."""
    blocked_group: str | None
    """Group of the first of these messages."""
    hot_group: str | None
    """Group with the most waiting messages, from the lease holder."""
    hot_depth: int | None
    reason: str | None
    """Reason why the assigned member does not hold it yet."""
    waiting: int | None = None
    """Upper bound of the waiting messages."""
    failing: int = 0
    """Number of failed messages that are retried."""


@dataclass(frozen=True, slots=True)
class Consumers:
    """Consumer group at an address."""

    consumer_group: str
    address: str
    """Name of the address, or of the topic if no address has it."""
    state: str
    """State of the group in Kafka's words."""
    members: list[str]
    partitions: list[Share]
    faults: list[str] = field(default_factory=list)
    """Problems that keep its consumers from handling messages."""
    left_behind: int = 0
    """Number of handlers that did not end when cancelled."""
    unheard: dict[str, ProbeError] = field(default_factory=dict)
    """Web servers that were not readable, with the reason if known."""
    buffered_bytes: int | None = None
    """Memory of messages in flight in all its consumers; None = unknown."""
    buffer_limit_bytes: int | None = None
    throttled: dict[str, float] = field(default_factory=dict)
    """As in :class:`Worker`."""
    dead_letters: OpenRecords | None = None
    """Open dead letters; None = no open ones, or unknown."""
    webs: list[str] = field(default_factory=list)
    """Web servers of its consumers that answer."""

    @property
    def blocked(self) -> int:
        """Number of messages with written dead letters whose groups wait."""
        return sum(partition.blocked for partition in self.partitions)

    @property
    def lag(self) -> float | None:
        """Sum of the known lags."""
        return _sum(partition.lag for partition in self.partitions)

    @property
    def waiting(self) -> int:
        """Upper bound of the waiting messages."""
        return sum(partition.waiting or 0 for partition in self.partitions)

    @property
    def oldest(self) -> Share | None:
        """Partition with the oldest unfinished message."""
        known = [partition for partition in self.partitions if partition.head_age_seconds is not None]
        return max(known, key=lambda partition: partition.head_age_seconds or 0, default=None)

    @property
    def hottest(self) -> Share | None:
        """Partition whose largest group has most messages."""
        known = [partition for partition in self.partitions if partition.hot_depth]
        return max(known, key=lambda partition: partition.hot_depth or 0, default=None)


@dataclass(frozen=True, slots=True)
class Bridge:
    """Bridge, as in ``bridge status``."""

    bridge: str
    source_topic: str
    target_topic: str
    state: str
    members: list[str]
    lag: int | None
    forwarded: int
    fault: str | None
    standing: list[str]
    """Lines that need an operator's attention."""
    stands: bool
    """Whether messages wait because of its problems."""
    quarantine: OpenRecords | None = None
    """As in :class:`Address`, in the target cluster."""


@dataclass(frozen=True, slots=True)
class LeftBridge:
    """Bridge that was removed from the configuration while messages waited."""

    bridge: str
    what: str
    do: str
    stands: bool
    """Whether no other bridge reads its source."""


@dataclass(frozen=True, slots=True)
class LeftLetters:
    """Open dead letters of a consumer group without progress."""

    consumer_group: str
    address: str
    dead_letters: OpenRecords


@dataclass(frozen=True, slots=True)
class Finding:
    """Reason why something has stopped or soon will, and the fix."""

    where: str
    what: str
    do: str = ""
    """Fix; empty if the command suffices."""
    command: str = ""
    """Command that helps; empty = none."""
    stands: bool = False
    """Whether it needs action, because messages wait until an operator acts."""


@dataclass(frozen=True, slots=True)
class Status:
    """State of one application."""

    app: str
    bootstrap_servers: str
    at: str
    """Time of the state: ISO 8601, UTC."""
    workers_state: str
    """State of the workers' group in Kafka's words."""
    workers: list[Worker]
    addresses: list[Address]
    consumers: list[Consumers]
    bridges: list[Bridge]
    faults: list[str] = field(default_factory=list)
    """Parts that did not answer."""
    left_bridges: list[LeftBridge] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    """Problems with deleted topics of consumers."""
    foreign: list[str] = field(default_factory=list)
    """A line for each member of the workers' group that is not a worker."""
    other_apps: list[tuple[str, str]] = field(default_factory=list)
    """Address, and ``app.id`` of other workers that accept its messages too."""
    left_letters: list[LeftLetters] = field(default_factory=list)
    last_run: RunResult | None = None
    """Last reconciliation run; None = no run in the last days, or unknown."""


def _sum(numbers: Iterable[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
