"""Plan of a regrouping: former lanes, new lanes, and the former lanes of each new one. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agents.topic_checks.lanes import is_marked, lanes_before, live, mark, shown_lanes
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.errors import RingfenceError
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.lane_layout import LaneLayout
from ringfence_kafka.wording import counted, first_of
from tables.codec import Meta, next_key

NAMES_MAX: Final = 8


class RegroupError(RingfenceError):
    """The address cannot have these lanes, or not now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Regrouping:
    """Lanes of an address before and after the regrouping."""

    address: str
    partitions: int
    """Number of input partitions."""
    before: int | None
    """Key ``lanes`` of the address before; 0 = one lane for each partition; None = no lane has started."""
    after: int
    """Key ``lanes`` of the address after."""
    done: bool
    """Whether all lanes have rings for their partitions already."""

    @property
    def former(self) -> LaneLayout:
        """Layout before."""
        return LaneLayout.from_setting(self.before or 0, self.partitions)

    @property
    def wanted(self) -> LaneLayout:
        """Layout after."""
        return LaneLayout.from_setting(self.after, self.partitions)

    def sources(self, lane: int) -> list[int]:
        """Return the former lanes whose IDs may have their home in this lane."""
        return self.former.lanes_of(self.wanted.partitions_of(lane))

    @property
    def touched(self) -> list[int]:
        """All lanes before and after, new ones first: without a record, a worker could still open them."""
        return [*range(self.former.lanes, self.wanted.lanes), *self.former_lanes]

    @property
    def former_lanes(self) -> range:
        """All lanes before."""
        return range(self.former.lanes)

    def name(self, lane: int) -> str:
        """Return the name of a lane."""
        return wire_names.lane_name(self.address, lane)


def plan(address: AddressSettings, partitions: int, metas: Mapping[int, Meta], lanes: int) -> Regrouping:
    """Return the regrouping of an address to ``lanes`` lanes; 0 = one lane for each partition.

    ``metas``: changelog partition → its last meta record.

    Raises:
        RegroupError: It is not possible, or something else must be done first.
    """
    name = address.name
    if lanes > partitions:
        raise RegroupError(
            f"{address.input_topic} has {counted(partitions, 'partition')}, so {name} has at most as many lanes: choose --lanes "
            f"{partitions} or fewer, or give the topic more partitions first: 'ringfence topics grow {name} --partitions {lanes}'"
        )
    own = live(metas)
    counts = {lanes_before(meta) for meta in own.values()}
    if len(counts) > 1:
        raise RegroupError(
            f"lanes of {name} have recorded different numbers of lanes "
            f"({', '.join(map(shown_lanes, sorted(counts)))}): so it is unknown which ring has which IDs. "
            "Set lanes to one of them, let workers open its lanes, and run this again"
        )
    before = next(iter(counts), None)
    if before is not None:
        _require_homes(address, partitions, before, own)
        _require_alike(address, own)
    done = before in {None, lanes} and not any(map(is_marked, metas.values()))
    return Regrouping(address=name, partitions=partitions, before=before, after=lanes, done=done)


def _require_homes(address: AddressSettings, partitions: int, before: int, metas: Mapping[int, Meta]) -> None:
    now = LaneLayout.from_setting(before, partitions)
    for meta in metas.values():
        recorded = meta.partition_counts.get(address.input_topic, partitions)
        if not now.keeps_homes(LaneLayout.from_setting(before, recorded)):
            raise RegroupError(
                f"{address.input_topic} has {counted(partitions, 'partition')}, it had {recorded} when the lanes of {address.name} began: groups have "
                "left the lanes with their IDs. Run 'ringfence topics check', do what it names, and run this again"
            )


def _require_alike(address: AddressSettings, metas: Mapping[int, Meta]) -> None:
    """Check that lanes have the same rules and topics, since their IDs may be joined."""
    rules = [meta.rules for meta in metas.values() if meta.rules]
    if any(item != rules[0] for item in rules):
        raise RegroupError(
            f"lanes of {address.name} have different rules, so their IDs cannot be compared: run 'ringfence "
            f"rings adopt {address.name}', then this again"
        )
    recorded: dict[tuple[str, str], Any] = {}
    for meta in metas.values():
        facts = {("topic IDs", topic): id_ for topic, id_ in meta.topic_ids.items()}
        facts |= {("partition counts", topic): str(count) for topic, count in meta.partition_counts.items()}
        facts.pop(("partition counts", address.input_topic), None)
        for (what, topic), fact in facts.items():
            if recorded.setdefault((what, topic), fact) != fact:
                raise RegroupError(
                    f"lanes of {address.name} have recorded different {what}: a topic was created again, and not all lanes have opened "
                    "since. Let workers open all lanes, stop them, and run this again"
                )


def marked(meta: Meta, lane: int, before: int) -> Meta:
    """Return the record of a lane during a regrouping: it keeps its content, but workers do not open it."""
    offsets = meta.next_offsets
    if not meta.lanes:
        offsets = {next_key(topic, lane, 1): offset for topic, offset in offsets.items()}
    return meta._replace(lanes=mark(before), next_offsets=offsets)


def unmarked(meta: Meta) -> Meta:
    """Return the record as it was before :func:`marked`."""
    before, offsets = lanes_before(meta), meta.next_offsets
    if not before:
        offsets = {place.rpartition("/")[0]: offset for place, offset in offsets.items()}
    return meta._replace(lanes=before, next_offsets=offsets)


def print_plan(regrouping: Regrouping, obstacles: Sequence[str], say: Callable[[str], object]) -> None:
    """Print the planned work and its obstacles, one line each."""
    if regrouping.before is not None:
        for lane in range(regrouping.wanted.lanes):
            say(f"would write  {described(regrouping, lane)}")
        for lane in range(regrouping.wanted.lanes, regrouping.former.lanes):
            say(f"would end    lane {regrouping.name(lane)}")
    for obstacle in obstacles:
        say(f"obstacle     {obstacle}")


def described(regrouping: Regrouping, lane: int) -> str:
    """Return a line on a new lane: its partitions, and the former lanes whose IDs it gets."""
    partitions = list(map(str, regrouping.wanted.partitions_of(lane)))
    sources = list(map(regrouping.name, regrouping.sources(lane)))
    which = "partition" if len(partitions) == 1 else "partitions"
    return f"lane {regrouping.name(lane)}  {which} {first_of(partitions, NAMES_MAX)}  with the IDs of {first_of(sources, NAMES_MAX)}"


def document(
    regrouping: Regrouping, obstacles: Sequence[str], written: Mapping[int, int], *, dry_run: bool
) -> dict[str, Any]:
    """Return the document of a regrouping. ``written``: number of IDs in each written ring."""
    lanes = range(regrouping.wanted.lanes) if regrouping.before is not None and not regrouping.done else ()
    return {
        "dry_run": dry_run,
        "address": regrouping.address,
        "before": regrouping.before,
        "after": regrouping.after,
        "lanes": [
            {
                "lane": lane,
                "partitions": list(regrouping.wanted.partitions_of(lane)),
                "from": regrouping.sources(lane),
                "size": written.get(lane),
            }
            for lane in lanes
        ],
        "in_the_way": list(obstacles),
    }
