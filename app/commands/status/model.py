"""What is known at one moment. Times are seconds, ages are counted from records' timestamps."""

from dataclasses import dataclass, field

from ringfence_kafka.http.probe_errors import ProbeError

OPEN = "open"
NOBODY = "nobody"
"""No worker has the lane."""
UNKNOWN = "unknown"
"""A worker has it and was not heard."""


@dataclass(frozen=True, slots=True)
class Lane:
    """One partition of an address."""

    lane: str
    partition: int
    state: str
    """As ``/health`` of its worker has it; or :data:`NOBODY`, :data:`UNKNOWN`."""
    reason: str | None
    """Why it is not open, as its worker says."""
    worker: str | None
    lag: int | None
    """Offsets of the input that are not processed, as Kafka counts them; None = the cluster does not tell."""
    head_age_seconds: float | None
    """Of the oldest of these."""
    undecided_seconds: float | None
    """How old the first record of the input is that waits for its producer to commit; None = none does."""
    rate: float | None
    """Messages a second that came into the input in the last minute, as its worker measures; None = no worker tells it yet."""
    ring_size: int | None
    ring_capacity: int | None
    seconds_covered: float | None
    accepted: int | None
    """This and the next: since the worker has the lane; None = no worker tells."""
    duplicates: int | None
    unchecked: int | None
    quarantined: int | None
    waiting: int | None = None
    """Offsets of the lag, unless they are markers alone: so many messages wait at most."""
    folder_fault: bool = False
    """It is not open because its folder cannot be written; its worker says why."""
    note: str | None = None
    """IDs that are kept and forgotten since its changelog was deleted; None = it was not."""


@dataclass(frozen=True, slots=True)
class Address:
    """One address and its lanes."""

    address: str
    topic: str
    lanes: list[Lane]
    faults: list[str] = field(default_factory=list)
    """What is wrong with its topics."""

    @property
    def lag(self) -> int | None:
        """Of all lanes that tell it."""
        known = [lane.lag for lane in self.lanes if lane.lag is not None]
        return sum(known) if known else None

    @property
    def rate(self) -> float | None:
        """Of all lanes that tell it."""
        known = [lane.rate for lane in self.lanes if lane.rate is not None]
        return sum(known) if known else None

    @property
    def duplicates_share(self) -> float | None:
        """Of what its lanes judged since their workers have them; None = nothing, or no worker tells."""
        counts = [(lane.accepted or 0, lane.duplicates or 0, lane.unchecked or 0) for lane in self.lanes]
        judged = sum(map(sum, counts))
        return sum(duplicates for _, duplicates, _ in counts) / judged if judged else None

    @property
    def seconds_covered(self) -> float | None:
        """Of the lane whose ring reaches back the least."""
        return min(
            (lane.seconds_covered for lane in self.lanes if lane.seconds_covered is not None), default=None
        )

    @property
    def fullest(self) -> Lane | None:
        """The lane whose ring holds the most."""
        known = [lane for lane in self.lanes if lane.ring_capacity]
        return max(known, key=lambda each: (each.ring_size or 0) / (each.ring_capacity or 1), default=None)


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
    """``away`` or ``answers``, as it says."""
    state_folder: str = ""
    """Why its lanes cannot use their folders, and what it does about it; empty = they can."""
    lanes_in_memory: list[str] = field(default_factory=list)
    """Of these the lanes that work, with their files in memory; an earlier version does not tell it."""
    faults: list[str] = field(default_factory=list)
    unheard: ProbeError | None = None
    """Why its web server tells us nothing, where that is known."""
    buffered_bytes: int | None = None
    """Memory of messages that are under way; None = it does not tell."""
    buffer_limit_bytes: int | None = None
    throttled: dict[str, float] = field(default_factory=dict)
    """Seconds of the last minute for which brokers delayed it because of a quota, by request."""
    limits: dict[str, list[str]] = field(default_factory=dict)
    """Address → each disagreement of live workers on a limit, as the worker sees it."""


@dataclass(frozen=True, slots=True)
class Share:
    """One partition of an accepted topic, for one consumer group."""

    partition: int
    state: str
    """Of the lease: held, draining, released; none, unreadable."""
    holder: str | None
    holder_is_member: bool | None
    waits: str | None
    """Who was given the partition while another has the lease."""
    silent_seconds: float | None
    """Since the holder wrote."""
    lag: int | None
    running: int
    head_age_seconds: float | None
    """Of the first unfinished message."""
    head_group: str | None
    """Whose that is; None = it has none, or none waits."""
    head_attempts: int
    """How often that message was begun."""
    failing_group: str | None
    """Whose message is that handlers fail at for the longest; None = it has none, or none fails."""
    failing_attempts: int
    failing_seconds: float | None
    """For how long; None = none fails."""
    run_group: str | None
    """Whose message a handler runs for the longest; None = it has none, or none runs."""
    run_seconds: float | None
    """For how long; None = its consumer does not tell."""
    blocked: int
    """Messages that are not tried again, because their dead letters are written: their groups wait."""
    blocked_group: str | None
    """Whose the first of these is; None = it has none, or there is none."""
    hot_group: str | None
    """The group of which most messages wait here, as the holder knows it."""
    hot_depth: int | None
    reason: str | None
    """Why the one that was given the partition does not hold it yet, as it says."""
    waiting: int | None = None
    """Offsets that are not finished: so many messages wait at most."""


@dataclass(frozen=True, slots=True)
class Consumers:
    """A consumer group at an address."""

    consumer_group: str
    address: str
    """The topic, where no address has it."""
    state: str
    """Of the group, in Kafka's words."""
    members: list[str]
    partitions: list[Share]
    faults: list[str] = field(default_factory=list)
    """What its consumers say keeps messages from being handled."""
    left_behind: int = 0
    """Handlers that nobody could end."""
    unheard: dict[str, ProbeError] = field(default_factory=dict)
    """Of its web servers, by their addresses, those that tell us nothing, where it is known why."""
    buffered_bytes: int | None = None
    """Memory of messages that are under way, of all its consumers that tell it; None = none does."""
    buffer_limit_bytes: int | None = None
    throttled: dict[str, float] = field(default_factory=dict)
    """Seconds of the last minute for which brokers delayed its consumers because of a quota, by request."""

    @property
    def lag(self) -> int | None:
        """Of all partitions that tell it."""
        known = [partition.lag for partition in self.partitions if partition.lag is not None]
        return sum(known) if known else None

    @property
    def waiting(self) -> int:
        """So many messages wait at most, of all partitions that tell it."""
        return sum(partition.waiting or 0 for partition in self.partitions)

    @property
    def oldest(self) -> Share | None:
        """The partition whose first unfinished message is the oldest."""
        known = [partition for partition in self.partitions if partition.head_age_seconds is not None]
        return max(known, key=lambda each: each.head_age_seconds or 0, default=None)

    @property
    def hottest(self) -> Share | None:
        """The partition with the group of which most messages wait."""
        known = [partition for partition in self.partitions if partition.hot_depth]
        return max(known, key=lambda each: each.hot_depth or 0, default=None)


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
    """What somebody has to look at, a line each."""
    stands: bool
    """Whether messages wait because of it."""


@dataclass(frozen=True, slots=True)
class LeftBridge:
    """A bridge that is not configured any more, and had not handed on all."""

    bridge: str
    what: str
    do: str
    stands: bool
    """Whether no other bridge reads its source."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Why something has stopped or soon will, in a sentence, and what helps."""

    where: str
    what: str
    do: str
    """In words; may be empty where the command says it."""
    command: str
    """To be copied as it is; empty = none helps."""
    stands: bool
    """Whether messages wait because of it, until somebody acts."""


@dataclass(frozen=True, slots=True)
class Status:
    """Of one application at one moment."""

    app: str
    bootstrap_servers: str
    at: str
    """ISO 8601, UTC."""
    workers_state: str
    """Of the workers' group, in Kafka's words."""
    workers: list[Worker]
    addresses: list[Address]
    consumers: list[Consumers]
    bridges: list[Bridge]
    faults: list[str] = field(default_factory=list)
    """What could not be asked."""
    left_bridges: list[LeftBridge] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    """Faults of topics of consumers that somebody deleted."""
    foreign: list[str] = field(default_factory=list)
    """A line for each member of the workers' group that is not a worker."""
