"""State of the cluster when a run begins. The order of its questions makes the cut consistent.

First the committed offsets. Then the ends of the outputs, and that all up to there is decided: the effects of
the commits are below. Then the ends of the inputs: no output can name a record beyond.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from reconcile.cluster.admin import Admin, Place, TopicFacts
from reconcile.cluster.owners import recorded
from reconcile.run.history import cut
from ringfence_kafka.config.settings import AddressSettings, Settings
from ringfence_kafka.errors import MissingTopicError, PrerequisiteError
from ringfence_kafka.protocol import wire_names


@dataclass(frozen=True, slots=True)
class Survey:
    """All facts for a cut."""

    cluster: str  # Kafka's own ID of it; empty = it has none
    roles: Mapping[str, Mapping[str, str]]  # Address → role → topic
    topics: Mapping[str, TopicFacts]
    committed: Mapping[Place, int | None]
    starts: Mapping[Place, int]
    ends: Mapping[Place, int]
    """High watermarks of inputs, and stable ends of the other topics. A topic that is both counts as one of the others."""
    stable: Mapping[Place, int]  # of inputs the stable ends
    journal: Mapping[int, tuple[int, int]]  # what there is of the journal, by partition
    journal_position: dict[str, cut.Position]  # where it begins and ends, by its name
    recorded: Mapping[str, Mapping[int, cut.Recorded]] = field(default_factory=dict)
    """Address → lane → what the lane goes by."""

    @classmethod
    def ask(cls, settings: Settings, cluster: Admin) -> Self:
        """Ask the cluster.

        Raises:
            MissingTopicError: a topic does not exist.
            PrerequisiteError: this user may not read one, or not see the group.
            BrokerUnavailableError: no broker answers, or all deny access.
            OpenTransactionError: a transaction stays open.
            ForeignChangelogError: an address's topics are another one's.
        """
        roles = {address.name: cut.topic_roles(settings.app.id, address) for address in settings.addresses}
        journal = wire_names.journal_topic(settings.app.id)
        cluster_id = cluster.connect()
        names = list(dict.fromkeys([*(topic for role in roles.values() for topic in role.values()), journal]))
        # An address with one lane now may have forwarded records before its lanes were regrouped.
        former = {
            address.name: topic
            for address in settings.addresses
            if (topic := cut.former_forward(settings.app.id, address)) is not None
        }
        topics = cluster.describe([*names, *former.values()])
        there = {name: topic for name, topic in former.items() if topic in topics and topics[topic].readable}
        roles = {
            name: role | ({"forward": there[name]} if name in there else {}) for name, role in roles.items()
        }
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
        committed = cluster.committed([*inputs, *places("forward")])
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
        """Return the cut of each address from these positions on; ``seen``: see :func:`reconcile.run.history.cut.cut_topic`."""
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
                # The ends of inputs are asked behind the outputs, and no output names a record that is not committed.
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
