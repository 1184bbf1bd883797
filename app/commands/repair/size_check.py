"""Whether a lane would accept what is published again, or refuse it for its size once more. Pure.

The lane's own code builds what it would write, for each topic that it would write to, and nothing is written.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from agents.decision.decide import Outcome
from agents.decision.envelope import MalformedEnvelopeError
from agents.decision.envelope_parts import Unit, Units
from agents.decision.ids_and_groups import IdReader, is_envelope
from agents.decision.partitioner import Partitioner
from agents.output.build import Emitter, Outputs, TooLargeError
from app.commands.repair.republished import Published, as_read_again
from ringfence_kafka.admin.topics import TopicDescription
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.producer.transactional import empty_batch
from ringfence_kafka.protocol import wire_names
from tables.ring import Checked, Verdict

_ANYTHING: Final = 2**31 - 1
"""Of a topic that is not there, or of which the cluster does not tell: who cannot know lets it through."""
_WAY_OUT: Final = "it would come back: raise it there, or --force"


class Input(NamedTuple):
    """The topic that is published to."""

    topic: str
    partitions: int
    end: int
    """Of its longest partition: offsets count, as the accepted record has its own in a header."""


class SizeCheck:
    """What the topics behind an input take."""

    def __init__(
        self,
        app_id: str,
        address: AddressSettings,
        others: Iterable[AddressSettings],
        published_to: Input,
        described: Mapping[str, TopicDescription],
        *,
        bridged: bool = False,
    ) -> None:
        """A lane's.

        Args:
            app_id: Whose workers they are.
            address: Whose rules hold.
            others: The addresses that parts of its transactions may go to.
            published_to: The input.
            described: Topics as they are now; of one that is missing everything fits.
            bridged: At a bridge's target, of whose workers only the accepted topic is known.
        """
        others = tuple(others)
        # What is a duplicate by now is not accepted, and may well be too large to be diverted: that is not asked.
        names = [*outputs(app_id, address, others), address.duplicates_topic]
        config = {name: described[name] for name in names if name in described and described[name].config}
        sizes = dict.fromkeys(names, _ANYTHING) | {
            name: topic_description.message_bytes_max for name, topic_description in config.items()
        }
        counts = dict.fromkeys(names, 1) | {
            name: topic_description.partitions for name, topic_description in config.items()
        }
        self._emitter = Emitter(
            address, wire_names.forward_topic(app_id, address.name), Outputs(counts, sizes, {}), others
        )
        self._input = published_to
        self._bridged = bridged
        self._reader = IdReader(address)
        self._units = Units(address, others)
        self._home = Partitioner(published_to.partitions, address.partitioner)

    def refusal(self, published: Published) -> str:
        """Why it is not published; empty = it is."""
        record = as_read_again(published, self._input.end, round(time.time() * 1000))
        source = wire_names.source(self._input.topic, published.partition) + b"%d" % record.offset
        units: dict[int, Unit] = {}
        (own_id,), _, _ = self._reader.ids([record])
        (group,) = self._reader.groups([record])
        lead = own_id
        if is_envelope(record):
            if self._bridged:
                return ""  # which addresses its parts may go to is not known here
            try:
                unit = units[record.offset] = self._units.open(record, own_id)
            except MalformedEnvelopeError:
                return ""  # the lane says it better, and may be configured otherwise
            group, lead = record.key, unit.lead
        home = published.partition
        if group is not None:
            home = self._home[group]
        elif lead is not None:
            home = self._home[lead[1:]]
        away = home != published.partition and not self._bridged
        outcome = Outcome(
            checked=Checked([Verdict.UNCHECKED], [None], 0, [], []),
            records=[record],
            groups=[group],
            sources=[source],
            originals=[],
            new_origins=[],
            forwarded=[(home, record, source)] if away else [],
            units=units,
        )
        try:
            self._emitter.emit(outcome, empty_batch)
        except TooLargeError as error:
            return f"{error.reasons[record.offset]}: {_WAY_OUT}"
        return ""


def outputs(
    app_id: str, address: AddressSettings, others: Iterable[AddressSettings], *, bridged: bool = False
) -> list[str]:
    """The topics that a lane may write it to: those of which it is worth to ask how they are."""
    if bridged:
        return [address.accepted_topic]
    return [
        address.accepted_topic,
        *(other.accepted_topic for other in others),
        wire_names.forward_topic(app_id, address.name),
    ]
