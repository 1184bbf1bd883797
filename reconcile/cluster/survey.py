"""State of the cluster when a run begins. The order of the questions makes the cut consistent.

First come the committed offsets. Then come the ends of the outputs, after a wait until all transactions up to
there are decided: the outputs of the committed inputs lie below these ends. The ends of the inputs come last:
no output can name a record beyond them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from reconcile.cluster.admin import Admin, Place, TopicFacts
from reconcile.run.history import cut
from reconcile.run.history.cut import Recorded
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import ForeignChangelogError, MissingTopicError, PrerequisiteError
from ringfence_kafka.protocol import wire_names

META_KEY: Final = b"\x00"  # key of the record that ends each transaction in a changelog (docs/formats.md)
FORMATS: Final = frozenset({1, 2, 3})  # formats of that record


@dataclass(frozen=True, slots=True)
class Survey:
    """Facts for the cuts of all addresses."""

    cluster: str  # Kafka's ID of the cluster; empty = unknown
    roles: Mapping[str, Mapping[str, str]]  # address → role → topic
    topics: Mapping[str, TopicFacts]
    committed: Mapping[Place, int | None]
    starts: Mapping[Place, int]
    ends: Mapping[Place, int]
    """High watermarks of inputs, stable ends of other topics. A topic in both roles is one of the others."""
    stable: Mapping[Place, int]  # stable ends of inputs
    journal: Mapping[int, tuple[int, int]]  # partition → existing range of the journal
    journal_position: dict[str, cut.Position]  # name of the journal → its start and end
    recorded: Mapping[str, Mapping[int, cut.Recorded]] = field(default_factory=dict)
    """Address → lane → rules that the lane recorded."""

    @classmethod
    def read(cls, settings: Settings, cluster: Admin) -> Self:
        """Ask the cluster.

        Raises:
            MissingTopicError: A topic does not exist.
            PrerequisiteError: This user may not read a topic or see the group.
            BrokerUnavailableError: No broker answers, or all deny access.
            OpenTransactionError: A transaction stays open.
            ForeignChangelogError: Topics of an address belong to another address.
        """
        roles = {address.name: cut.topic_roles(settings.app.id, address) for address in settings.addresses}
        journal = wire_names.journal_topic(settings.app.id)
        cluster_id = cluster.connect()
        names = list(dict.fromkeys([*(topic for role in roles.values() for topic in role.values()), journal]))
        # An address that now has one lane may have forwarded records before a regrouping.
        former = {
            address.name: topic
            for address in settings.addresses
            if (topic := cut.former_forward(settings.app.id, address)) is not None
        }
        topics = cluster.describe([*names, *former.values()])
        for name, topic in former.items():
            if topic in topics and topics[topic].readable:
                roles[name]["forward"] = topic
        missing = [topic for topic in names if topic not in topics]
        if missing:
            raise MissingTopicError(
                f"{', '.join(missing)} missing, or this user may not see it: fix its name, or run "
                "'ringfence topics create'"
            )
        forbidden = [topic for topic in names if not topics[topic].readable]
        if forbidden:
            raise PrerequisiteError(
                f"{', '.join(forbidden)}: this user may not read this: allow Read on it; see docs/security.md"
            )
        lanes = recorded(settings, cluster)

        def places(*wanted: str) -> list[Place]:
            return [
                (value[role], number)
                for value in roles.values()
                for role in wanted
                if role in value
                for number in range(topics[value[role]].partitions)
            ]

        inputs, outputs = places("input"), places("forward", "accepted", "quarantine", "duplicates")
        of_journal = [(journal, number) for number in range(topics[journal].partitions)]
        committed = _judged(cluster.committed([*inputs, *places("forward")]), lanes, topics)
        highs = cluster.high_watermarks([*outputs, *of_journal])
        stable = cluster.stable_ends([*outputs, *of_journal], highs)
        starts = cluster.log_starts([*inputs, *outputs, *of_journal])
        ends = cluster.high_watermarks(inputs)
        return cls(
            cluster_id,
            roles,
            topics,
            committed,
            starts,
            {**ends, **{output: stable[output] for output in outputs}},
            cluster.stable_ends(inputs, dict.fromkeys(inputs, 0)),
            {number: (starts[journal, number], stable[journal, number]) for _, number in of_journal if starts[journal, number] < stable[journal, number]},
            {
                journal: cut.Position(
                    topics[journal].id,
                    tuple(starts[item] for item in of_journal),
                    tuple(stable[item] for item in of_journal),
                )
            },
            lanes,
        )  # fmt: skip

    def cuts(
        self,
        addresses: Sequence[AddressSettings],
        positions: Mapping[str, cut.Position],
        seen: Mapping[str, Sequence[cut.Position]] | None = None,
    ) -> dict[str, cut.AddressCut]:
        """Return the cut of each address. ``seen``: see :func:`reconcile.run.history.cut.cut_topic`."""
        seen = seen or {}
        ((journal, now),) = self.journal_position.items()
        lost = cut.journal_lost(journal, now, positions.get(journal), seen.get(journal, ()))
        cuts = {
            address.name: self._cut(self.roles[address.name], positions, seen, lost) for address in addresses
        }
        return {
            address.name: replace(
                cuts[address.name],
                targets=[cuts[name].accepted for name in address.transaction_addresses],
                recorded=self.recorded.get(address.name, {}),
            )
            for address in addresses
        }

    def _cut(
        self,
        roles: Mapping[str, str],
        positions: Mapping[str, cut.Position],
        seen: Mapping[str, Sequence[cut.Position]],
        journal: Sequence[cut.Lost],
    ) -> cut.AddressCut:
        cuts: dict[str, cut.TopicCut] = {}
        accepted = {role["accepted"] for role in self.roles.values()}
        for role, topic in roles.items():
            numbers = range(self.topics[topic].partitions)
            until = self.committed if role == "input" else self.ends
            key, ends = topic, self.ends
            if role == "input" and topic in accepted:
                # A chained input ends at the stable end read after the outputs, because outputs name only
                # committed records.
                key, ends = cut.chained_key(topic), self.stable
            state = cut.TopicState(
                self.topics[topic].id,
                tuple(self.starts[topic, number] for number in numbers),
                tuple(until[topic, number] for number in numbers),
                tuple(ends[topic, number] for number in numbers),
            )
            cuts[role] = replace(cut.cut_topic(topic, state, positions.get(key), seen.get(key, ())), key=key)
        forward = roles.get("forward")
        forwards = range(self.topics[forward].partitions) if forward else ()
        return cut.AddressCut(
            cuts["input"], cuts.get("forward"), cuts["accepted"], cuts["quarantine"], cuts.get("duplicates"),
            tuple(self.committed[str(forward), index] or 0 for index in forwards),
            journal,
        )  # fmt: skip


def recorded(settings: Settings, cluster: Admin) -> dict[str, dict[int, Recorded]]:
    """Return the recorded rules by address and lane; lanes without a record are absent.

    A changelog that does not exist, or that this user may not read, is left out.

    Raises:
        ForeignChangelogError: A changelog, and so a forward topic, belongs to another address.
        PrerequisiteError: Another version wrote a record.
        BrokerUnavailableError: No broker answers.
    """
    addresses = {
        wire_names.changelog_topic(settings.app.id, address.name): address.name
        for address in settings.addresses
    }
    topics = cluster.describe(addresses)
    places = [(name, number) for name, facts in topics.items() for number in range(facts.partitions)]
    found: dict[str, dict[int, Recorded]] = {}
    for (topic, number), value in cluster.newest(places, META_KEY).items():
        theirs, said = _meta(value, topic, number)
        ours = (settings.app.id, addresses[topic])
        if theirs != ours:
            raise ForeignChangelogError(f"{topic}/{number}", theirs, ours)
        found.setdefault(addresses[topic], {})[number] = said
    return found


def _judged(
    committed: Mapping[Place, int | None],
    lanes: Mapping[str, Mapping[int, Recorded]],
    topics: Mapping[str, TopicFacts],
) -> dict[Place, int | None]:
    """Return by place the larger of the committed offset and the lane's position in its changelog, as a lane opens.

    Committed offsets expire, and others can delete them. Both are from the same transaction.
    """
    found = dict(committed)
    for said in (said for address in lanes.values() for said in address.values()):
        for place, offset in said.next_offsets.items():
            facts = topics.get(place[0])
            if place in found and facts is not None and said.topic_ids.get(place[0], facts.id) == facts.id:
                found[place] = max(found[place] or 0, offset)
    return found


def _meta(value: bytes, topic: str, lane: int) -> tuple[tuple[str, str], Recorded]:
    """Return app ID and address, and rules and limits, of a lane's meta record."""
    try:
        return _parsed(value, lane)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PrerequisiteError(
            f"{topic}/{lane}: the lane's meta record cannot be read ({error!r}), so its rules are not known: use the reconciliation of the "
            "version that the workers run"
        ) from error


def _parsed(value: bytes, lane: int) -> tuple[tuple[str, str], Recorded]:
    meta = json.loads(value)
    if meta["format"] not in FORMATS:
        raise ValueError(f"format {meta['format']!r}")
    promise = meta.get("promise") or {}
    lanes = int(meta.get("lanes", 0))
    positions = {}
    for key, offset in meta["next_offsets"].items():
        topic, _, number = key.rpartition("/") if lanes else (key, "", lane)
        positions[topic, int(number)] = int(offset)
    recorded = Recorded(
        dict(meta.get("rules", {})),
        int(meta["capacity"]),
        int(meta["max_age_ms"]),
        lanes,
        min_age_ms=int(promise.get("min_age_ms", 0)),
        size=int(promise.get("size", 0)),
        broken=int(promise.get("broken", 0)),
        next_offsets=positions,
        topic_ids=dict(meta.get("topic_ids", {})),
    )
    return (str(meta["app"]), str(meta["address"])), recorded
